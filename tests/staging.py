"""How the in-process runner is set up for a scenario: what its setting names, and what is drawn by a number."""

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.crashing import EpochSink
from tests.restless import Eager, Restless
from tests.scenarios import Scenario, Setting
from watersmeet.adaptation.migration import ROWS_AT_ONCE
from watersmeet.adaptation.relocating import Relocator
from watersmeet.adaptation.relocation_policies import RelocationSettings
from watersmeet.adaptation.spill_policies import policy_named
from watersmeet.adaptation.spilling import SpillSettings
from watersmeet.engine.compaction import Merging
from watersmeet.engine.inbox import chunks
from watersmeet.epoch.task import SlotTask
from watersmeet.plan.default_tree import default_tree
from watersmeet.plan.hops import is_mixed
from watersmeet.plan.placement import Placement
from watersmeet.plan.probe_orders import NO_ORDERS, ProbeOrders, default_orders
from watersmeet.plan.tree import Join, Leaf, nodes_of, parse_tree
from watersmeet.planning.reoptimizing import Reoptimizer
from watersmeet.query.logical import JoinQuery
from watersmeet.runtime.inprocess import InProcessQuery
from watersmeet.runtime.inprocess_frames import pandas_hash
from watersmeet.state.manifest import Manifest

EAGER = Merging(small_fan_in=2, tier_ratio=1.5)
"""Merges that do not wait for many batches."""
STEPWISE = {
    "rows_per_arrived": 0,
    "share_of_state": 1 << 40,
    "fan_in": 2,
    "cells": 4,
    "share_every": 1,
    "small_rows_min": 0,
    "small_per_arrived": 0.5,
}
HOSTS = 2


def weak_hash(keys: list[pa.Array]) -> np.ndarray:
    """Three values for all keys, far apart: most keys collide, and the groups are few."""
    return (pandas_hash(keys) % np.uint64(3)) << np.uint64(62)


def low_hash(keys: list[pa.Array]) -> np.ndarray:
    """A hash of few bits at both ends of the space."""
    mixed = pandas_hash(keys)
    return ((mixed & np.uint64(1)) * np.uint64(0xFFFFFFFF00000000)) | (mixed >> np.uint64(62))


HASHES = {"pandas": pandas_hash, "weak": weak_hash, "low": low_hash}


def starter(scenario: Scenario, folder: Path, setting: Setting) -> Callable[[EpochSink], InProcessQuery]:
    """Makes drivers on the folder; like every run, each starts with empty memory."""
    rows_max = setting.chunk_rows
    runs = count()
    names = [stream.name for stream in scenario.query.streams]
    trees = (
        [Join(tuple(map(Leaf, range(len(names)))))]
        if setting.young
        else [parse_tree(text, names) for text in scenario.trees]
    )

    def start(sink: EpochSink) -> InProcessQuery:
        shutil.rmtree(folder / "memory", ignore_errors=True)
        (folder / "memory").mkdir(parents=True)
        sink.folder = folder / "parts"
        memory = folder / "memory" / str(next(runs))  # of its own: an earlier driver may still be running
        return InProcessQuery(
            scenario.query,
            folder / "checkpoint",
            slots=setting.slots,
            partitions=setting.partitions,
            memory=memory if setting.memory else None,
            memory_budget_bytes=setting.budget,
            hosts=1 if setting.wander is None else HOSTS,
            host_of=_drawn_host(setting),
            hash_keys=HASHES[setting.hash],
            trees=trees,
            orders=NO_ORDERS
            if setting.young
            else drawn_orders(scenario.query, trees or [default_tree(scenario.query)], setting),
            cut=chunks if rows_max is None else lambda frames: chunks(frames, rows_max=rows_max),
            mode=scenario.mode,
            spill=None
            if setting.spill is None or setting.budget is None
            else SpillSettings(policy=policy_named(setting.spill), budget_bytes=setting.budget, upkeep=setting.upkeep),
            placement=_drawn_placement(setting),
            rows_at_once=setting.feed_rows or ROWS_AT_ONCE,
            merging=_merging(setting),
            sink=sink,
            parts=sink if setting.parts else None,
            keeps_results=True,
            reoptimizer=_reoptimizer(scenario, setting),
            relocator=_relocator(setting),
        )

    return start


def _reoptimizer(scenario: Scenario, setting: Setting) -> Reoptimizer | None:
    how = scenario.query, setting.slots, setting.partitions, scenario.mode
    if setting.young:
        return Eager(*how)
    return None if setting.restless is None else Restless(*how, setting.restless)


def _relocator(setting: Setting) -> Relocator | None:
    """It looks for imbalance after every epoch, and deals out clean-ups of any size."""
    if setting.relocation is None:
        return None
    settings = RelocationSettings(
        policy=setting.relocation,
        threshold=0.9,
        interval_s=0.0,
        ratio=1.0,
        budget_bytes=setting.budget,
        dealt_bytes_min=0,
    )
    return Relocator(settings)


def _merging(setting: Setting) -> Merging:
    merging = EAGER if setting.merge_rows is None else replace(EAGER, rows_min=setting.merge_rows, **STEPWISE)
    return replace(merging, row_bytes=setting.merge_bytes or merging.row_bytes)


def _drawn_host(setting: Setting) -> Callable[[SlotTask], int]:
    """Any host for any task, drawn anew for every epoch, or every few."""
    if (number := setting.wander) is None:
        return lambda _: 0
    return lambda task: random.Random(f"{number} {task.epoch // (1 + number)} {task.stage} {task.slot}").randrange(
        HOSTS
    )


def _drawn_placement(setting: Setting) -> Callable[[Manifest], Placement] | None:
    """Any groups for any slot, drawn anew for every key and number of slots. Some slots may have none."""
    if setting.scatter is None:
        return None

    def drawn(manifest: Manifest) -> Placement:
        chance, slots = random.Random(f"{setting.scatter} {setting.slots}"), range(setting.slots)
        keys = manifest.placement.owners
        return Placement(setting.slots, {key: tuple(chance.choices(slots, k=setting.partitions)) for key in keys})

    return drawn


def drawn_orders(query: JoinQuery, trees: Sequence[Join], setting: Setting) -> ProbeOrders:
    """Probe orders that differ from start to start where slots or budget do; results must not. Those of a node over
    several keys stay: they are what its state is for."""
    if setting.orders is None:
        return NO_ORDERS
    now, always = random.Random(f"{setting.orders} {setting.slots} {setting.budget}"), random.Random(setting.orders)
    drawn = {}
    for node in [node for tree in trees for node in nodes_of(tree)]:
        chance = always if is_mixed(query, node) else now
        drawn[node] = tuple(tuple(chance.sample(order, len(order))) for order in default_orders(node))
    return drawn
