"""The protocol of one epoch."""
