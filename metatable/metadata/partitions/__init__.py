"""The metadata partitions, a module each, and a `Snapshot`, which asks them."""
