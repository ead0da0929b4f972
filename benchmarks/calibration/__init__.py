"""The parts of `benchmarks/cost_model.py`: random queries, what is learned of them, measuring, fitting, judging."""
