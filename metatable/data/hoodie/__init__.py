"""What lies in `.hoodie`: the timeline, what commits and services tell on it, and properties."""
