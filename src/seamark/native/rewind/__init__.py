"""Rolling a directory back to an earlier batch."""
