"""Pipelines: many sources, many sinks, one exactly-once epoch."""
