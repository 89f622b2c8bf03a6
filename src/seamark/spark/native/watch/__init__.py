"""Taking a directory into a store again and again."""
