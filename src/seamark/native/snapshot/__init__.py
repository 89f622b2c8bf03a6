"""Storing a directory as a checkpoint."""
