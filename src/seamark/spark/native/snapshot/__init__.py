"""Taking a directory into a store."""
