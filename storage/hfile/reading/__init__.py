"""How an HFile is read: opened, its index followed, blocks fetched, decoded, taken apart."""
