"""Rows in tables of Apache Iceberg."""
