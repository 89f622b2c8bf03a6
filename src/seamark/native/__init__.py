"""Checkpoint directories of queries that know nothing of Seamark."""
