"""Running queries: `spark` is the product, `inprocess` drives the same engine without Spark."""
