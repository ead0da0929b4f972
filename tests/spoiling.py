"""Copies in the memory tier that are no longer what they were: segments still, with other values."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.state.segment import read_segment, write_segment


def spoil_copies(memory: Path) -> int:
    """Put another segment into the place of every copy; how many there were."""
    copies = list(memory.glob("*.seg"))
    for path in copies:
        runs = [(store, replace(run, payload=shifted(run.payload))) for store, run in read_segment(path)]
        other = path.with_suffix(".other")
        with other.open("wb") as file:
            write_segment(file, runs)
        other.rename(path)
    return len(copies)


def shifted(payload: pa.RecordBatch) -> pa.RecordBatch:
    """Integers are one more than they were, or less."""
    columns = [pc.bit_wise_xor(c, 1) if pa.types.is_integer(c.type) else c for c in payload.columns]
    return pa.RecordBatch.from_arrays(columns, schema=payload.schema)
