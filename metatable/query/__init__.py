"""Which files and which rows answer a question."""
