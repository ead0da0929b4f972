"""Workloads that compare versions (`benchmarks/side_by_side.py`): ours only, deterministic, 10 to 25 s on 2 cores.

They use nothing of watersmeet but what all versions have: `StreamJoin`, and `build_query` with `InProcessQuery`. A
workload is a module with three functions:

    add_arguments(parser)                   its size and seed
    prepare(data, args)                     writes what it reads into a folder; it is not measured
    run(data, work, args) -> findings       what is measured; the findings must be equal in all versions
"""
