"""A key that holds 30 % of the rows of each of three streams is joined within the memory budget, chunk by chunk."""

import json
import subprocess
import sys
from pathlib import Path

from watersmeet.engine.mjoin import BYTES_MAX

ROWS, HOT_ROWS = 1000, 300
BUDGET = 64 << 20


def measured(hot_rows: int) -> dict[str, int]:
    program = Path(__file__).with_name("hot_key_program.py")
    command = [sys.executable, str(program), str(ROWS), str(hot_rows), str(BUDGET)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


def test_a_hot_key_costs_time_and_not_memory():
    hot, even = measured(HOT_ROWS), measured(0)
    assert (hot["results"], even["results"]) == (HOT_ROWS**3, 0)
    assert hot["result_bytes"] > 50 * BUDGET
    assert hot["grown_bytes"] - even["grown_bytes"] <= BUDGET + BYTES_MAX
