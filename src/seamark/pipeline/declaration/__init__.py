"""What a pipeline is declared to be, and how it is compared with a checkpoint."""
