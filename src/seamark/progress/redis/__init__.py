"""Progress stores in Redis, Valkey or Garnet."""
