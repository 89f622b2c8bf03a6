"""The logs that sources and sinks keep for themselves."""
