"""Running a plan: frames in, results and new state out. No Spark, no clock, no randomness."""
