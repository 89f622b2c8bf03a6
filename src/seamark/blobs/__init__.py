"""Where bytes live: the contract of a backend, and the backends."""
