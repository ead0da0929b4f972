"""Which join tree: cost models, probe orders, and the search for a tree within a CPU and a memory budget.

Pure functions over frozen values (O1-O6; Zhu 2006, chapters 4-8). The optimiser decides and does not act. It knows
neither Spark nor the engine: its input is statistics, its output is a tree.
"""
