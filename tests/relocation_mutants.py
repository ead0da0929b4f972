"""Mutants of moves of partition groups between slots: see `tests/mutants.py`."""

from tests.mutants import Mutant

RELOCATION_MUTANTS = [
    Mutant(
        "moved state is lost",
        "state.manifest:moved",
        "receiver[name] = (*receiver.get(name, ()), *leaving)",
        "receiver[name] = receiver.get(name, ())",
    ),
    Mutant(
        "moved state replaces the receiver's own",
        "state.manifest:moved",
        "receiver[name] = (*receiver.get(name, ()), *leaving)",
        "receiver[name] = leaving",
    ),
    Mutant("a sender keeps what it gave away", "state.manifest:moved", "extent.groups - going", "extent.groups"),
    Mutant("a sender gives away all groups", "state.manifest:moved", "extent.groups - going", "extent.groups & going"),
    Mutant(
        "moved state goes, rows do not follow",
        "state.manifest:moved",
        "placement=manifest.placement.after(moves), ",
        "",
    ),
    Mutant(
        "closed generations do not move",
        "state.manifest:moved",
        "for part in _cut(extent, extent.groups & going)",
        "for part in _cut(extent, extent.groups & going) if part.is_active",
    ),
    Mutant(
        "moved rows count for both slots until they are written anew",
        "engine.merging:Merges.made_own",
        "layer = replace(layer, extents=(), lost=0)",
        "yield replace(layer, extents=(), lost=0)",
    ),
    Mutant(
        "merged closed parts of foreign files are lost",
        "engine.closed_state:_chosen",
        "chosen.append([layers.pop(name) for name in names])",
        "[layers.pop(name) for name in names]",
    ),
]
