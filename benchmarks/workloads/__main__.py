"""Prepares or runs a workload with the watersmeet below a folder, and with no other.

    python -m benchmarks.workloads <name> prepare|run <src> <data> <work> [arguments]

What a run finds, and the arguments it had, are written to <work>/report.json; nothing is printed.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

import watersmeet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("step", choices=("prepare", "run"))
    for folder in ("src", "data", "work"):
        parser.add_argument(folder, type=Path)
    known, _ = parser.parse_known_args()
    workload = importlib.import_module(f"benchmarks.workloads.{known.name}")
    workload.add_arguments(parser)
    args = parser.parse_args()
    assert Path(watersmeet.__file__).is_relative_to(args.src), f"{watersmeet.__file__} is not below {args.src}"
    if args.step == "prepare":
        workload.prepare(args.data, args)
    else:
        findings = workload.run(args.data, args.work, args)
        arguments = {name: value for name, value in vars(args).items() if name not in vars(known)}
        (args.work / "report.json").write_text(json.dumps({"arguments": arguments, "findings": findings}))


if __name__ == "__main__":
    main()
