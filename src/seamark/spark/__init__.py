"""Everything that knows Spark's files and its JVM; nothing outside this package does."""
