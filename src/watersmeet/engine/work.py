"""The stores of a slot while an epoch runs: active rows, and arrivals to be stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from watersmeet.engine.emission import runs_of
from watersmeet.engine.generations import Part
from watersmeet.engine.marks import not_all_new
from watersmeet.engine.mjoin import probe
from watersmeet.engine.on_demand import Missing
from watersmeet.engine.partials import Joined
from watersmeet.engine.statistics import Tally
from watersmeet.epoch.pairs import add_rows
from watersmeet.epoch.task import InputRows, NodeInput
from watersmeet.plan.nodes import NodePlan
from watersmeet.plan.tree import tree_text
from watersmeet.state.manifest import ACTIVE
from watersmeet.state.measures import INTERMEDIATE, PROBE_NS
from watersmeet.state.run import Run
from watersmeet.state.segment import read_segment, write_segment
from watersmeet.state.storage import writing
from watersmeet.state.widths import row_bytes_max

HELD_BYTES_MAX = 128 << 20
"""The most bytes of an epoch's rows that wait in memory until they are written."""


class Scratch:
    """Keeps rows in memory; on disk from the second chunk of a large inbox on, or beyond `HELD_BYTES_MAX`."""

    def __init__(self, parent: Path, cleanup: ExitStack) -> None:
        self._parent, self._cleanup = parent, cleanup
        self._folder: Path | None = None
        self._files = self._held = 0

    def open(self) -> None:
        if self._folder is None:
            with writing(self._parent):
                folder = tempfile.TemporaryDirectory(prefix=".scratch-", dir=self._parent)
            self._folder = Path(self._cleanup.enter_context(folder))

    def keep(self, store: int, run: Run) -> Run:
        self._held += run.kept_bytes()
        if self._held > HELD_BYTES_MAX:
            self.open()
        if self._folder is None:
            return run
        path = self._folder / str(self._files)
        self._files += 1
        with writing(path), path.open("xb") as file:
            write_segment(file, [(store, run)])
        return read_segment(path)[0][1]


class Work:
    """The stores of a slot while its chunks are joined."""

    def __init__(self, nodes: tuple[NodePlan, ...], stores: list[list[Run]], scratch: Scratch, tally: Tally) -> None:
        self.nodes, self.stores, self.scratch, self.tally = nodes, stores, scratch, tally
        self.arrived: list[tuple[int, Run]] = []
        self.skips_new = False
        """Whether the topmost node leaves out the results of new rows (`engine/marks.py`)."""
        self.missing: Missing | None = None

    def results(self, number: int, deltas: list[list[Run]]) -> Iterator[Joined]:
        """The new results of a node from the deltas of one chunk. The stores below it are brought up to date."""
        node = self.nodes[number]
        for i in range(len(node.inputs)):
            for run in self._delta(node, i, deltas):
                yield from self.tally.timed(PROBE_NS, self._probe(node, i, run))
                self._add(node.first_store + i, run)

    def _probe(self, node: NodePlan, i: int, run: Run) -> Iterator[Joined]:
        """The results of new rows of an input with the stored rows of the others."""
        first = node.first_store
        held = self.stores[first : first + len(node.inputs)]
        if self.missing is not None:
            held = self.missing.with_missing(held, first, i, run)
        wanted = not_all_new(run, held) if self.skips_new and node is self.nodes[-1] else None
        yield from probe(node, i, run, held, counts=self.tally.counts, generations=wanted)

    def store(self, deltas: list[list[Run]]) -> None:
        """Bring all stores up to date; the topmost node joins nothing."""
        node = self.nodes[-1]
        for i in range(len(node.inputs)):
            for run in self._delta(node, i, deltas):
                self._add(node.first_store + i, run)

    def rows_by_store(self) -> list[int]:
        return [sum(run.rows for run in runs) for runs in self.stores]

    def count_rows(self, stage: int, there: Sequence[int]) -> None:
        """Report the rows of all inputs: those stored before the chunks (`there`), and those that the chunks added."""
        now = self.rows_by_store()
        for node in self.nodes:
            name = tree_text(node.tree, node.names)
            for store, layout in enumerate(node.inputs, node.first_store):
                new = now[store] - there[store]
                add_rows(self.tally.inputs, NodeInput(stage, name, layout.label), InputRows(there[store], new))

    def take_arrived(self) -> list[tuple[int, Run]]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def _delta(self, node: NodePlan, i: int, deltas: list[list[Run]]) -> Iterator[Run]:
        """The new rows of an input: rows of the chunk, or results of the node below."""
        child, source = node.children[i], node.stage_inputs[i]
        if source is not None:
            yield from deltas[source]
            return
        assert child is not None
        for joined in self.results(child, deltas):
            self.tally.count(INTERMEDIATE, joined.rows)
            self.tally.trace(joined, is_final=False)
            yield from runs_of(joined, node.inputs[i], self.tally.partitions)

    def deliver(self, number: int, joined: Joined) -> Iterator[Joined]:
        """Owed results of a node are arrivals for its parent; those of the topmost node are results of the stage."""
        found = [(p, parent.children.index(number)) for p, parent in enumerate(self.nodes) if number in parent.children]
        if not found:
            yield joined
            return
        (above, i), *_ = found
        parent = self.nodes[above]
        self.tally.count(INTERMEDIATE, joined.rows)
        for run in runs_of(joined, parent.inputs[i], self.tally.partitions):
            first, last = parent.first_store, parent.first_store + len(parent.inputs)
            for result in probe(parent, i, run, self.stores[first:last]):
                yield from self.deliver(above, result)
            self._add(first + i, run)

    def active(self) -> list[Part]:
        return [Part(store, ACTIVE, run) for store, runs in enumerate(self.stores) for run in runs]

    def forget(self, parts: Sequence[Part]) -> None:
        """Remove expired rows from the active rows."""
        gone = {id(part.run) for part in parts}
        self.stores = [[run for run in runs if id(run) not in gone] for runs in self.stores]

    def _add(self, store: int, run: Run) -> None:
        run = replace(self.scratch.keep(store, run), widest=row_bytes_max(run.payload))
        self.stores[store].append(run)
        self.arrived.append((store, run))
