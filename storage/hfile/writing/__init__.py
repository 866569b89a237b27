"""How an HFile is written: entries into blocks, blocks packed and placed, the index beside."""
