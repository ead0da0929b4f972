"""Benchmarks: each file asserts equal results before it prints a ratio."""
