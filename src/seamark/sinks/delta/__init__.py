"""A sink for Delta tables, by the package ``deltalake``: no JVM package is needed."""
