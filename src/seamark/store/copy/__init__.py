"""Copying checkpoints from one store to another."""
