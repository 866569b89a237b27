"""The command line, `metatable VERB …`: arguments and rows in, rows, text or JSON out."""
