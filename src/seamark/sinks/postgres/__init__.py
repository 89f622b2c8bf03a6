"""Rows in a table of PostgreSQL, exactly once."""
