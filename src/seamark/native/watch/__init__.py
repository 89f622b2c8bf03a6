"""Storing a directory while its query runs."""
