"""What a run reports: lines, metrics, the progress record."""
