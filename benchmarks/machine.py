"""What a measurement was made on; committed with every result."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def description() -> dict[str, Any]:
    packages = ("pyspark", "pyarrow", "numpy", "duckdb", "watersmeet")
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "command": f"python -m {sys.modules['__main__'].__spec__.name} {' '.join(sys.argv[1:])}".strip(),
    }


def save(name: str, result: dict[str, Any]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": description(), **result}, indent=2) + "\n")
    return path
