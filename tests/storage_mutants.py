"""Mutants of merges, slots and tiers: see `tests/mutants.py`."""

from tests.mutants import Mutant

_MERGE = "return _arranged(hashes, concat_batches([run.keys for run in runs]), counts, times, payload, in_pieces=True)"
_DISTINCT = """key_of_row = np.repeat(np.arange(len(counts)), counts)
    marks = np.stack([key_of_row, key_of_row if times is None else times])
    kept = np.sort(np.unique(marks, axis=1, return_index=True)[1])
    times = None if times is None else times[kept]
    keys = concat_batches([run.keys for run in runs])
    return build_runs(hashes, keys, times, take_rows(concat_batches(payload), kept), key_of_row[kept])"""

STORAGE_MUTANTS = [
    # merges
    Mutant("a merge loses duplicates", "state.run:_merged", _MERGE, _DISTINCT),
    Mutant(
        "a merge in parts loses its last part",
        "state.run:merge_in_parts",
        "in _in_parts(runs, may_split_keys):",
        "in _in_parts(runs, may_split_keys)[:-1] or [runs]:",
    ),
    Mutant("a merge in parts loses all but one", "state.run:_in_parts", "parts.append([])", "parts[-1] = []"),
    Mutant(
        "a large layer loses all runs but one",
        "engine.layers:stored",
        "runs=tuple(tiers.peek(ref))",
        "runs=tuple(tiers.peek(ref))[:1]",
    ),
    Mutant("a heavy range loses its second half", "engine.kernels:split_heavy", "1 + heavy)", "1 + 0 * heavy)"),
    Mutant(
        "a merge loses layers",
        "engine.layers:Layer.made_runs",
        "by_store[store].append(run)",
        "by_store[store] = [run]",
    ),
    Mutant(
        "a merge mixes up keys",
        "state.run:_arranged",
        "(np.cumsum(counts) - counts)[order]",
        "np.cumsum(counts) - counts",
    ),
    Mutant("a share leaves its rows behind", "engine.merging:Merges.merge_share", "cuts[id(layer)][1] if", "layer if"),
    Mutant(
        "a piece loses its last group",
        "engine.merging:Merges.merge_share",
        "self.grid.edges[share.last]",
        "self.grid.edges[share.last] - 1",
    ),
    Mutant("a cut loses what lies above it", "engine.layers:Grid.cut", "zip((1, 0, 1), ", "zip((1, 0, 0), "),
    Mutant("a cut loses what lies below it", "engine.layers:Grid.cut", "zip((1, 0, 1), ", "zip((0, 0, 1), "),
    Mutant(
        "stores that are not merged yet are lost",
        "engine.merging:Merges._merge_stores",
        "*(rest for _, rest in parts if rest.runs)",
        "*()",
    ),
    Mutant(
        "stores that are not merged yet are kept twice",
        "engine.merging:Merges._merge_stores",
        "*(rest for _, rest in parts if rest.runs)",
        "*layers",
    ),
    Mutant(
        "a layer is split with the extents of other runs",
        "engine.layers:Layer.split",
        "self.extents[place] for place in places",
        "self.extents[-1 - place] for place in places",
    ),
    # slots and tiers
    Mutant("extents are not cut for new slots", "state.manifest:_cut", "extent.groups & groups", "extent.groups"),
    Mutant(
        "extents lose their last group",
        "state.manifest:_cut",
        "extent.groups & groups",
        "(extent.groups & groups).within(0, (extent.groups & groups).high - 1)",
    ),
    Mutant("groups stay with their old slots", "state.manifest:placed", "placement=placement, ", ""),
    Mutant(
        "extents are opened whole",
        "engine.opening:_cut",
        "return copies.rows_of(",
        "return run if True else copies.rows_of(",
    ),
    Mutant(
        "a slot reads what lies between its groups",
        "state.cuts:cut_to_groups",
        "len(groups.ranges) < 2 or cut.rows == rows",
        "True",
    ),
    Mutant(
        "an estimated number of rows is believed",
        "state.cuts:Copies.rows_of",
        "None if extent.is_estimate else extent.rows",
        "extent.rows",
    ),
    Mutant("a cut forgets its rank base", "state.run:Run.between_hashes", "self.rank_base + first", "self.rank_base"),
    Mutant("a cut is written with old ranks", "state.segment:compact", "run.rank_base << run.time_bits", "0"),
    Mutant(
        "memory grows over its budget",
        "state.tiers:Tiers.retain",
        "(room is None or ref.bytes <= room)",
        "True",
    ),
    Mutant(
        "every stage takes the whole budget",
        "runtime.inprocess_slots:Slots._tiers",
        "task.memory_bytes",
        "self.setup.memory_budget_bytes",
    ),
    Mutant(
        "the cap of a host forgets what is there",
        "state.host_cap:room_for",
        "cap_bytes - sum(sizes[name] for name in sizes.keys() - ours)",
        "cap_bytes",
    ),
    Mutant(
        "a file that has gone makes room and stays",
        "state.host_cap:_evicted",
        "if folder.remove(name) else 0",
        "if True else 0",
    ),
    Mutant("a spoiled copy is joined", "state.tiers:Tiers._in_memory", "== (ref.bytes, ref.crc)", "!= (0, 0)"),
    Mutant(
        "expired segments stay in memory",
        "engine.opening:open_state",
        "tiers.leave(dead | task.dropped,",
        "tiers.leave(task.dropped,",
    ),
]
