"""metatable."""
