"""What a directory holds, and what is wrong with it."""
