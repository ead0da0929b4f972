"""The size of a store in this engine: how long it keeps a row, and the bytes of a row. (The paper counts live rows.)

A row of a stream lives for its window. A result lives until the first of its parts ends, so for the shortest window at
most. Rows expire by time bucket, so they stay longer than they live: by an eighth of the longest window in the stage,
by the delay, and by a micro-batch. The micro-batch does not count if one key covers all streams, because a slot that
sees all streams knows the new watermark before the commit.

Results end one by one. Two rules remove them before their bucket expires:

- A slot that sees all streams does not store results that have ended by the end of the micro-batch.
- A bucket with rows of two micro-batches is merged when it closes. The merge leaves out results that have ended.

    row of a stream     key, event time, columns that are read, values of its other key classes
    stored result       key, interval, columns that are still read, values of key classes that reach out of it,
                        partition groups under the keys it was joined by

Rows without a window never expire: their number is live(S), for the assumed running time.

Figures are expected values just before a bucket expires. A budget has a margin above them (`dominating.py`).

Known limitation. All keys are assumed to be as wide as numbers.
"""

from __future__ import annotations

from watersmeet.optimizer.join_graph import JoinGraph, Streams, bits

BUCKETS_PER_WINDOW = 8
"""The same as in `engine/compaction.py`."""
KEY_BYTES = 8
"""Bytes of a key value, and of an event time."""
INTERVAL_BYTES = 16
GROUP_BYTES = 2
INDEX_BYTES_MAX = 12
"""Bytes of the index for a row with a key of its own: hash, counts, part of a sieve, and expired rows that no merge has
removed yet. Rows with the same key share hash, counts, sieve and key."""
STORE_FILE_BYTES = 32 << 10
"""Bytes of an empty store on a slot: its parts of some dozen files, one or more per time bucket."""
MERGED_AFTER = 2
"""Micro-batches from a row to the merge of its bucket, if that is merged."""
MERGED = 0.4
"""The measured share of ended results that merges remove, where a slot does not see all streams
(`benchmarks/cost_model.py`)."""
LEAST_SHARE = 1e-9


def kept_bytes(graph: JoinGraph, streams: Streams, batches_per_s: float, longest_s: float) -> float:
    """Bytes of a store at most, on all slots together, in a stage whose longest window is this."""
    return _kept_rows(graph, streams, batches_per_s, longest_s) * stored_bytes(graph, streams)


def stored_bytes(graph: JoinGraph, streams: Streams) -> float:
    """Bytes of a row of a store."""
    if streams.bit_count() == 1:
        return graph.row_bytes(streams) + KEY_BYTES
    return _result_bytes(graph, streams)


def _kept_rows(graph: JoinGraph, streams: Streams, batches_per_s: float, longest_s: float) -> float:
    if not streams & ~graph.endless:
        return graph.live(streams)
    return graph.found(streams) * _kept_s(graph, streams, batches_per_s, longest_s)


def _kept_s(graph: JoinGraph, streams: Streams, batches_per_s: float, longest_s: float) -> float:
    """Of how many seconds rows are kept."""
    bucket_s, batch_s = longest_s / BUCKETS_PER_WINDOW, 1 / batches_per_s
    late_s = bucket_s if graph.has_common_class else bucket_s + batch_s
    kept_s = graph.kept_seconds(streams) + late_s
    if streams.bit_count() == 1:
        return kept_s
    return _seconds_of_results(graph, streams, kept_s, bucket_s, batch_s)


def _seconds_of_results(graph: JoinGraph, streams: Streams, kept_s: float, bucket_s: float, batch_s: float) -> float:
    """Of how many seconds results are kept, those that are let go before their bucket left out."""
    in_merged_s = max(0.0, kept_s - MERGED_AFTER * batch_s) * min(1.0, bucket_s / batch_s)
    if graph.has_common_class:
        stored, left = _not_ended(graph, streams, batch_s / 2), _not_ended(graph, streams, MERGED_AFTER * batch_s)
        return kept_s * stored - in_merged_s * (stored - left)
    return kept_s - in_merged_s * MERGED * (1 - _not_ended(graph, streams, batch_s))


def _not_ended(graph: JoinGraph, streams: Streams, age_s: float) -> float:
    """Which part of the results has not ended so long after the latest of its rows: each of the others may be as old as
    its window, and one without a window ends nothing. A stream has the latest row as often as its window is short."""
    share = latest = 0.0
    product = 1.0
    for i in bits(streams):
        window = graph.windows_s[i]
        in_time = 1.0 if graph.endless >> i & 1 else max(1 - age_s / window, LEAST_SHARE)
        product *= in_time
        share += 1 / (window * in_time)
        latest += 1 / window
    return min(1.0, product * share / latest)


def _result_bytes(graph: JoinGraph, streams: Streams) -> float:
    columns, joined_by, touched = graph.row_bytes(streams), 0, 0
    for i in bits(streams):
        mine = graph.stream_classes[i]
        columns -= KEY_BYTES * mine.bit_count()  # of every part: its other key classes, and its event time
        joined_by |= touched & mine
        touched |= mine
    reaching_out = touched.bit_count() - joined_by.bit_count() + _wide_and_cut(graph, streams)
    columns -= sum(p.read_bytes for p in graph.others if p.streams & streams == p.streams)
    others = INTERVAL_BYTES + KEY_BYTES * reaching_out + GROUP_BYTES * joined_by.bit_count()
    return max(columns, 0.0) + others


def _wide_and_cut(graph: JoinGraph, streams: Streams) -> int:
    """Key classes that link some of these streams, and streams beside them: only those over three or more can."""
    inside = [(each.streams & streams).bit_count() for each in graph.wide_classes]
    return sum([1 < held < each.streams.bit_count() for held, each in zip(inside, graph.wide_classes, strict=True)])
