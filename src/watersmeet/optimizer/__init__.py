"""Which join tree: cost models, probe orders, and the search for a tree within a CPU and a memory budget.

Pure functions over frozen values (O1-O6; Zhu 2006, chapters 4-8). It decides and does not act, and knows neither Spark
nor the engine: what was measured comes in as figures, and a tree goes out.
"""
