"""Which plan a join runs: from the query, hints, budgets and a sample of its first rows, without Spark."""
