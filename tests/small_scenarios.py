"""Hypothesis strategies for scenarios that are small in data and rich in mishaps: what the commit protocol is for.

Two or three streams of one kind, a few rows in two to four batches, one key or a chain; joins, and aggregates in every
output mode. Whatever can befall a batch or a clean-up does (`tests/crashing.py`). What is varied here least, values and
types, is varied most in `tests/strategies.py`.
"""

from random import Random

import pyarrow as pa
from hypothesis import strategies as st

from tests.scenarios import ALL_GROUPS, UTC, Epoch, Scenario, Setting, table_of
from tests.tearing import TEARS
from watersmeet.adaptation.migration import STRATEGIES
from watersmeet.adaptation.spill_policies import DEFAULT_POLICY
from watersmeet.query.logical import Stream

COMMANDS_MAX = 26
"""A driver that starts with a batch, and closes windows after it, carries out so many commands."""
_STEPS = st.integers(1, COMMANDS_MAX)
MISHAPS = st.one_of(
    st.sampled_from(("after", "during", "crash", "closing", "silent", "again", "restart")),
    st.sampled_from(("sink before", "sink during", "sink after")),
    _STEPS.map(lambda number: f"step {number}"),
    _STEPS.map(lambda number: f"rival {number}"),
    st.integers(0, 999).map(lambda seed: f"duel {seed}"),
)
TORN = st.sampled_from(((),) * 2 * len(TEARS) + tuple((f"torn {how}",) for how in sorted(TEARS)))
WINDOW_US = 8
TREES = {2: ((),), 3: ((), ("((a b) c)",), ("(a (b c))",))}
PLANS = {
    2: (),
    3: tuple(f"{tree} {way}" for tree in ("((a b) c)", "(a (b c))", "(a b c)") for way in STRATEGIES[1:]),
}
MODES = ("update", "complete", "append", "append")


@st.composite
def small_scenarios(draw: st.DrawFn) -> Scenario:
    count = draw(st.sampled_from((2, 2, 3)))
    names = "abc"[:count]
    is_chain = count == 3 and draw(st.booleans())
    windowed = draw(st.sampled_from((True, True, False)))
    mode = draw(st.sampled_from((None, None, *MODES)))
    windowed = windowed or mode == "append"
    columns = [("k", pa.int64()), ("j", pa.int64()), ("ts", UTC), ("v", pa.int64())]
    streams = tuple(
        Stream(name, pa.schema(columns), "ts", draw(st.sampled_from((0, 0, WINDOW_US // 4)))) for name in names
    )
    batches = draw(st.integers(2, 4))
    seed = draw(st.integers(0, 1 << 20))
    select, group_by = draw(_asked(names, windowed, mode))
    return Scenario(
        "small",
        streams,
        where=("a.k = b.k AND b.j = c.j" if is_chain else " AND ".join(f"a.k = {name}.k" for name in names[1:]),),
        within=f"{WINDOW_US} microseconds" if windowed else None,
        windows={},
        select=select,
        batches=[_batch(streams, number, Random(f"{seed} {number}")) for number in range(batches)],
        setting=draw(_settings()),
        schedule=tuple(draw(_epochs(number, PLANS[count])) for number in range(batches)),
        trees=draw(st.sampled_from(TREES[count])),
        group_by=group_by,
        mode=mode,
    )


@st.composite
def _asked(draw: st.DrawFn, names: str, windowed: bool, mode: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The select list and what is grouped by."""
    values = tuple(f"{name}.v" for name in names)
    if mode is None:
        return values, ()
    keys = draw(st.sampled_from(((), ("a.k",), ("a.v",))))
    if mode == "append" or (windowed and draw(st.booleans())):
        length = draw(st.sampled_from((3, 6, 12)))
        slide = draw(st.sampled_from((length, length // 3)))
        keys = (*keys, f"window(result_time, '{length} microseconds', '{slide} microseconds')")
    return (
        *(f"{key} AS key" for key in keys[:1] if "window" not in key),
        "count(*) AS x",
        f"sum({values[-1]}) AS y",
    ), keys


def _batch(streams: tuple[Stream, ...], number: int, chance: Random) -> dict[str, pa.Table]:
    """A few rows around a time that goes on by more than half a window."""
    now = 1000 + 5 * number
    batch = {}
    for stream in streams:
        if chance.random() < 0.1:
            continue  # the stream has no entry in the batch
        rows = [
            [chance.choice((0, 0, 1)), chance.choice((0, 0, 1)), now + chance.randint(-4, 4), chance.randint(0, 2)]
            for _ in range(chance.choice((0, 1, 2, 3, 3)))
        ]
        batch[stream.name] = table_of(stream.schema, rows)
    return batch


@st.composite
def _settings(draw: st.DrawFn) -> Setting:
    budget = draw(st.sampled_from((None, None, 1, 4000)))
    return Setting(
        slots=draw(st.integers(1, 2)),
        partitions=draw(st.sampled_from((2, 4))),
        memory=budget is not None and draw(st.booleans()),
        budget=budget,
        spill=DEFAULT_POLICY if budget is not None and draw(st.booleans()) else None,
        idle_timeout_ms=draw(st.sampled_from((None, 10))),
        merge_rows=draw(st.sampled_from((None, 1))),
        feed_rows=draw(st.sampled_from((None, 1, 3))),
        parts=draw(st.booleans()),
    )


@st.composite
def _epochs(draw: st.DrawFn, number: int, plans: tuple[str, ...]) -> Epoch:
    restarts = number > 0 and draw(st.sampled_from((False, False, True)))
    clean = draw(st.sampled_from((0, 0, 1, 99)))
    failures = tuple(draw(st.lists(MISHAPS, max_size=3)))
    plan = draw(st.sampled_from(("",) * len(plans) + plans)) if plans else ""
    return Epoch(
        failures=(*draw(TORN), *failures),
        slots=draw(st.integers(1, 3)) if restarts else None,
        now_ms=1 + number * draw(st.sampled_from((1, 20))),
        spill=draw(st.sampled_from(((), ((0, ALL_GROUPS),), ((1, ALL_GROUPS),), ((0, 0), (1, 1))))),
        clean=clean,
        keep=draw(st.booleans()),
        clean_failures=tuple(draw(st.lists(MISHAPS, max_size=2))) if clean else (),
        migrate=plan,
        migrate_failures=tuple(draw(st.lists(MISHAPS, max_size=2))) if plan else (),
        abort=bool(plans) and draw(st.sampled_from((False,) * 5 + (True,))),
    )
