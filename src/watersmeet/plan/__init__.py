"""The plan, as frozen values: which columns are kept, how rows are partitioned, which node probes what."""
