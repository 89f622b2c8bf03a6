"""What every package needs: loggers, files, checks, JSON, retries, texts."""
