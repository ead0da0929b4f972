"""The allocator of Arrow's buffers while a slot works.

The buffers of an epoch are of a few sizes and live as long as the epoch. Arrow's default allocator gives their pages
back to the system and touches new ones in the next epoch; malloc keeps them: a third of the page faults in
`benchmarks/state_growth.py`, and no more memory.
"""

from __future__ import annotations

import os

import pyarrow as pa


def use_system_allocator() -> None:
    """Let Arrow allocate by malloc in this process, unless the user has chosen an allocator."""
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and pa.default_memory_pool().backend_name != "system":
        pa.set_memory_pool(pa.system_memory_pool())
