"""What an epoch is and is told to do, the contract between driver and slots, and the commit protocol: values and pure
functions, driven by Spark (`runtime/spark`), in process (`runtime/inprocess.py`) and by tests that crash in between."""
