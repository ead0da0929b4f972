"""The product: stream joins as Structured Streaming queries. The only package that imports pyspark."""
