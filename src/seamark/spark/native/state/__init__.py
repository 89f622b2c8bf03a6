"""State files: decoded, read as rows, repartitioned."""
