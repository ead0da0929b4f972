"""The plan, as frozen values: kept columns, partitioning of rows, stages, nodes and their probe orders."""
