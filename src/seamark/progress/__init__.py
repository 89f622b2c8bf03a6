"""How far each source has been read, and the configuration under which it was."""
