"""What option `plan` asks for: certain trees, one of a kind, or a search."""
AUTO = "auto"
