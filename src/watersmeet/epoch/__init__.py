"""Epochs, the contract between driver and slots, and the commit protocol: values and pure functions. Spark drives them
(`runtime/spark`), or one process (`runtime/inprocess.py`), or tests that crash between two commands."""
