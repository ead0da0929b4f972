"""Hypothesis strategies for how a scenario runs: the set-up of the engine, and what befalls every epoch."""

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.drawn_trees import migration_ways
from tests.scenarios import ALL_GROUPS, Epoch, Setting
from tests.staging import HASHES
from watersmeet.adaptation.ledger import UPKEEPS
from watersmeet.adaptation.spill_policies import POLICIES


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    return Setting(
        slots=draw(st.integers(1, 3)),
        partitions=draw(st.sampled_from((3, 8, 64))),
        memory=draw(st.sampled_from((True, True, True, False))),
        budget=draw(_BUDGETS),
        hash=draw(st.sampled_from(sorted(HASHES))),
        chunk_rows=draw(st.sampled_from((None, 3, 3, 1))),
        idle_timeout_ms=draw(st.sampled_from((None, None, 10))),
        merge_rows=draw(st.sampled_from((None, None, 1, 4, 12))),
        merge_bytes=draw(st.sampled_from((None, None, 12, 50, 200))),
        spill=draw(st.sampled_from((None, None, *sorted(POLICIES)))),
        upkeep=draw(st.sampled_from(sorted(UPKEEPS))),
        orders=draw(st.sampled_from((None, 0, 1, 2))),
        feed_rows=draw(st.sampled_from((None, 4, 16))),
        scatter=draw(st.sampled_from((None, 0, 1, 2))),
        wander=draw(st.sampled_from((None, 0, 1, 2))),
        relocation=draw(st.sampled_from((None, None, "lazy-disk", "active-disk", "thresholds", "balance"))),
        parts=draw(st.booleans()),
    )


_FAILURES = st.one_of(
    st.sampled_from(("after", "during", "crash", "silent", "again", "sink before", "sink during", "sink after")),
    st.integers(1, 24).flatmap(lambda number: st.sampled_from((f"step {number}", f"rival {number}"))),
    st.integers(0, 99).map(lambda seed: f"duel {seed}"),
)
"""Of all mishaps a batch can have, see `tests/crashing.py`."""
ASKED = ("relocate 0 1 0.5", "relocate 1 0 1", "relocate 2 0 0.3", "spill 0 0.3", "spill 1 1", "clean")
_BUDGETS = st.sampled_from((None, 1, 2500, 6000, 20000))


@st.composite
def schedule(draw: st.DrawFn, plans: Sequence[Sequence[str]]) -> tuple[Epoch, ...]:
    now_ms = 1
    epochs = []
    spills = draw(st.sampled_from(("all groups in every epoch", "some", "some", "")))
    some = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 63)), max_size=12, unique=True)
    whole = st.lists(st.tuples(st.integers(0, 3), st.just(ALL_GROUPS)), max_size=3, unique=True)
    every = st.just([(stage, ALL_GROUPS) for stage in range(4)])
    pairs = st.one_of(whole, some, whole) if spills == "some" else every
    moves = draw(st.booleans())
    triples = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 63), st.integers(0, 3)), max_size=8)
    asks = st.lists(st.sampled_from(ASKED), max_size=2)
    for number, plan in enumerate(plans):
        restarts = number and draw(st.sampled_from((False, False, True)))
        now_ms += draw(st.sampled_from((1, 1, 6, 30)))
        epochs.append(
            Epoch(
                failures=tuple(draw(st.lists(_FAILURES, max_size=2))),
                slots=draw(st.integers(1, 4)) if restarts else None,
                budget=draw(_BUDGETS) if restarts else None,
                **draw(st.sampled_from(({}, {}, {"spoiled": True}, {"wiped": True}))),
                now_ms=now_ms,
                spill=tuple(draw(pairs)) if spills else (),
                clean=draw(st.sampled_from((0, 0, 0, 1, 2, 99) if spills == "some" else (0, 0, 0, 0, 1)))
                if spills
                else 0,
                keep=bool(spills) and draw(st.booleans()),
                lost=bool(spills) and draw(st.booleans()),
                move=tuple(draw(triples)) if moves else (),
                ask="; ".join(draw(asks)) if moves else "",
                migrate=f"{' | '.join(plan)}{draw(migration_ways)}" if plan else "",
                abort=any(plans) and draw(st.sampled_from((False,) * 7 + (True,))),
                migrate_failures=tuple(draw(st.lists(_FAILURES, max_size=2))) if plan else (),
            )
        )
    return tuple(epochs)
