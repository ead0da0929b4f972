"""Queries by which streams share which keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from watersmeet.query.logical import JoinQuery, Stream, build_query


def linked_query(count: int, links: Sequence[Sequence[int]]) -> JoinQuery:
    """Some streams, and for every link a column that is equal in all streams of it; neighbours have a further
    predicate, so that no stream is without any."""
    names = [f"s{i}" for i in range(count)]
    schema = pa.schema([("v", pa.int64()), *((f"k{number}", pa.int64()) for number in range(len(links)))])
    equal = [f"s{i}.k{k} = s{j}.k{k}" for k, link in enumerate(links) for i, j in pairwise(sorted(link))]
    ordered = [f"{one}.v < {other}.v" for one, other in pairwise(names)]
    streams = [Stream(name, schema) for name in names]
    return build_query(streams, where=[*equal, *ordered], within=None, windows={}, select=["s0.v"])
