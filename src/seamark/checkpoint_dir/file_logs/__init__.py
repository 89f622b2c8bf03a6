"""The logs of Spark's file source and file sink."""
