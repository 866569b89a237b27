"""Ways back: `rollback`, `restore`, and the savepoints that they go back to."""
