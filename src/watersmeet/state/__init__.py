"""State at rest and in memory: sorted runs, segment files, the two tiers, the manifest."""
