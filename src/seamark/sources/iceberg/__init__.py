"""Iceberg tables as streams."""
