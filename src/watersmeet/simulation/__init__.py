"""Queries on many slots, simulated: the real engine or a counter model under a virtual clock, and one coordinator."""
