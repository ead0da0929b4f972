"""Changing what runs: spilling, clean-up, memory; decisions as values, carried out by the engine."""
