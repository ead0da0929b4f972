"""The papers' experiments, on the in-process runner: one seed gives one figure. README.md says what each shows."""
