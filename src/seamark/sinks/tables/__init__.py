"""What sinks to tables of Parquet files share: who writes the files, and what is known of them."""
