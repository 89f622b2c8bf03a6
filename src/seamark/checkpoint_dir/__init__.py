"""Spark's checkpoint directories: their files and formats, on any file system."""
