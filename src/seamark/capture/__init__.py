"""What a checkpoint holds of a directory: reading it, placing it, writing it back."""
