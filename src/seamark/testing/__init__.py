"""Instruments for testing a backend or sink of your own."""
