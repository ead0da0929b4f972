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
    Mutant("stores that moved groups lack are not made", "engine.step:_made", "if not task.lacks:", "if True:"),
    Mutant(
        "what moved groups lacked is made again in every epoch",
        "engine.step:step",
        "merge, spilled, made, copies.keep",
        "merge, spilled, (), copies.keep",
    ),
    Mutant(
        "rows join before the stores of moved groups are made",
        "engine.step:_run_nodes",
        "stores[store].append(run)",
        "pass",
    ),
    Mutant(
        "stores are made of all groups",
        "engine.moved_groups:rows_lacking",
        "cut_to_groups(run, groups, plan.partitions)",
        "run",
    ),
    Mutant(
        "only the first store that groups lack is made",
        "engine.moved_groups:rows_lacking",
        "for store in lacking for run in",
        "for store in lacking[:1] for run in",
    ),
    Mutant(
        "groups keep stores that their new slot does not have",
        "epoch.relocation:relocated",
        "if name in names[slot % len(names)]",
        "if True",
    ),
    Mutant(
        "a receiver makes what the sender lacks",
        "epoch.relocation:lacking_groups",
        "for slot in (move.sender, move.receiver)",
        "for slot in (move.receiver, move.sender)",
    ),
    Mutant(
        "all receivers are taken to have the first shape",
        "epoch.relocation:lacking_groups",
        "for slot in (move.sender, move.receiver)",
        "for slot in (move.sender, 0)",
    ),
    Mutant(
        "groups change shape while they owe results",
        "epoch.relocation:bound_groups",
        "found if extent.is_active else found | extent.groups",
        "found",
    ),
    Mutant(
        "groups change shape while results below them are owed",
        "epoch.relocation:bound_groups",
        "if any(debt.stage != number and debt.streams < inside for debt in owed):",
        "if False:",
    ),
    Mutant(
        "a start deals state out to slots of other shapes",
        "epoch.after:resumed",
        "if any(manifest.extents) and differs_by_slot(plan):",
        "if False:",
    ),
    Mutant(
        "slots of several shapes change in number while results are owed",
        "adaptation.slot_count:step_to_slots",
        "if fitting(plan, last, moves) == moves:",
        "if True:",
        crashes="the epoch refuses such moves",
    ),
    Mutant(
        "a driver has no slots for groups that are still elsewhere",
        "adaptation.coordinator:Coordinator.next_epoch",
        "self._fit(last.slots)",
        "pass",
        crashes="there is no memory for slots that it does not know",
    ),
]
