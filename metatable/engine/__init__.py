"""How work is spread: the protocol, and the engine of one process."""
