"""Progress, statistics and plans of a query for people, as values and as text."""
