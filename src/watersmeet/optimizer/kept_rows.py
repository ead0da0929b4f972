"""What this engine keeps of a store: for how long a row, and how many bytes of it. (The paper: live rows, whole.)

A row is kept until none that arrived with it can count: a row of a stream for its window, a result for the shortest of
its windows, because the first of its parts to end ends it. Expiry then takes an eighth of the longest window (a time
bucket), the delay, and a micro-batch, unless one key covers all streams: only a slot that sees all of them knows how
late it is before the batch has been committed.

    row of a stream     key, event time, columns that are read, values of its other key classes
    stored result       key, interval, columns that are still read, values of key classes that reach out of it,
                        partition groups under the keys it was joined by

Known limitation. Widths of keys are those of numbers; results of nodes that share a stage are let go earlier than this.
"""

from __future__ import annotations

from watersmeet.optimizer.join_graph import JoinGraph, Streams, bits

BUCKETS_PER_WINDOW = 8
"""As many as `engine/compaction.py` has."""
KEY_BYTES = 8
"""Of a value of a key class; an event time takes as many."""
INTERVAL_BYTES = 16
GROUP_BYTES = 2
ESTIMATED = 1.05
"""How many results there are follows from shares that were learned, so a little more is counted than expected."""


def kept_bytes(graph: JoinGraph, streams: Streams, batches_per_s: float) -> float:
    """Bytes of a store at most, on all slots together."""
    kept = graph.found(streams) * _kept_seconds(graph, streams, batches_per_s)
    if streams.bit_count() == 1:
        return kept * (graph.row_bytes(streams) + KEY_BYTES)
    return kept * _result_bytes(graph, streams) * ESTIMATED


def _kept_seconds(graph: JoinGraph, streams: Streams, batches_per_s: float) -> float:
    late_s = graph.window_s_max / BUCKETS_PER_WINDOW
    if not graph.has_common_class:
        late_s += 1 / batches_per_s
    return min(graph.kept_seconds(streams) + late_s, graph.running_s)


def _result_bytes(graph: JoinGraph, streams: Streams) -> float:
    columns, joined_by, touched = graph.row_bytes(streams), 0, 0
    for i in bits(streams):
        mine = graph.stream_classes[i]
        columns -= KEY_BYTES * mine.bit_count()  # of every part: its other key classes, and its event time
        joined_by |= touched & mine
        touched |= mine
    reaching_out = touched & graph.classes_of(graph.everyone & ~streams)
    columns -= sum(p.read_bytes for p in graph.others if p.streams & streams == p.streams)
    others = INTERVAL_BYTES + KEY_BYTES * reaching_out.bit_count() + GROUP_BYTES * joined_by.bit_count()
    return max(columns, 0.0) + others
