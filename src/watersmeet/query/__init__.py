"""The query: streams, predicates, windows and result columns, checked and resolved before anything runs."""
