"""The command line: `watersmeet demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from watersmeet import __version__
from watersmeet.errors import WatersmeetError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    parser = argparse.ArgumentParser(prog="watersmeet", description="Adaptive multi-way stream joins for PySpark.")
    parser.add_argument("--version", action="version", version=f"watersmeet {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="join three banks' offers live, on this machine")
    demo.add_argument("--rows", type=int, default=1_000_000, help="offers per bank (default: 1,000,000)")
    demo.add_argument("--folder", type=Path, default=Path("demo-output"), help="where to write (default: demo-output)")
    chosen = parser.parse_args(arguments)
    try:
        from watersmeet.demo import run_demo  # Spark is loaded only when it is needed

        run_demo(chosen.folder, chosen.rows)
    except WatersmeetError as error:
        print(f"watersmeet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nwatersmeet: interrupted; the same command starts again from nothing", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
