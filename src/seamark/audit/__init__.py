"""Holds what sinks show against the digests that checkpoints have of it."""
