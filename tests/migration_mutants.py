"""Mutants of migrations: see `tests/mutants.py`."""

from tests.mutants import Mutant

MIGRATION_MUTANTS = [
    Mutant(
        "stored rows are late when state is built of them",
        "engine.rebuild:rebuild_step",
        "deltas_of(chunk, plan, task.stage, None, tally)",
        "deltas_of(chunk, plan, task.stage, task.watermark_us, tally)",
    ),
    Mutant(
        "combinations of stored rows are forgotten",
        "engine.rebuild:_rebuilt_by_nodes",
        "if store in building:\n",
        "if False:\n",
    ),
    Mutant(
        "one run of a store is joined when state is built",
        "engine.rebuild:_all_results",
        "for run in inputs[origin]:",
        "for run in inputs[origin][:1]:",
    ),
    Mutant(
        "results for other stages are not built",
        "engine.rebuild:_rebuilt_by_nodes",
        "if task.joins:",
        "if False:",
    ),
    Mutant(
        "hops of a build see all rows",
        "engine.rebuild:_rebuilt_by_hops",
        "stage.indexes[target.index].arrivals if target.with_arrivals else None for target in hop.targets",
        "stage.indexes[target.index].arrivals for target in hop.targets",
    ),
    Mutant(
        "hops of a build do not run",
        "plan.state_matching:_joins",
        "if other == number or (stage.hops and same.node == stage.node):",
        "if other == number and not stage.hops:",
    ),
    Mutant(
        "a node over several keys is not fed",
        "plan.state_matching:rebuild",
        "if place in wanted or (new.stages[place.stage].hops and joins[place.stage])",
        "if place in wanted",
    ),
    Mutant(
        "what a node over several keys takes is not built",
        "plan.state_matching:_joins",
        "if any(place in wanted or (plan.stages[place.stage].hops and joins[place.stage]) for place in outside):",
        "if any(place in wanted for place in outside):",
    ),
    Mutant(
        "layouts are not compared",
        "plan.state_matching:rebuild",
        "if layout.name not in known[slot]",
        "if layout.name[:2] not in {name[:2] for name in known[slot]}",
    ),
    Mutant(
        "a store that one slot has is shared by all",
        "plan.state_matching:rebuild",
        "if layout.name not in known[slot]",
        "if layout.name not in set().union(*known)",
    ),
    Mutant(
        "a migration does not wait for what is owed",
        "adaptation.migration:_draining",
        "if all(extent.is_active for extent in last.all_extents()):",
        "if True:",
    ),
    Mutant(
        "state that owes nothing stays closed in a migration",
        "adaptation.migration:_draining",
        "return tuple(found)",
        "return ()",
    ),
    Mutant(
        "rows are fed from the first slot",
        "epoch.tasks:_feeding",
        "reads = tuple(before.of(slot, ",
        "reads = tuple(before.of(0, ",
    ),
    Mutant(
        "stores of the old plan stay in the manifest",
        "epoch.migrating:without_other_stores",
        "if name in store_names(plan, slot)",
        "if True",
    ),
    Mutant(
        "a driver goes on by the plan before a build",
        "runtime.inprocess:InProcessQuery._commit",
        "if self._changing is not None:",
        "if False:",
    ),
    Mutant(
        "a restart forgets a migration",
        "runtime.inprocess:InProcessQuery.__init__",
        "if known is not None and (known.towards is not None or known.trees != plan_text(self.plan)):",
        "if False:",
    ),
    Mutant(
        "a build counts as results",
        "epoch.kinds:shows",
        "case Takeover() | Build() | Backfill() | Switch():\n            return False",
        "case Build():\n            return 1\n        case Takeover() | Backfill() | Switch():\n            return 0",
    ),
    Mutant(
        "what arrives in a migration is not stored for the new plan",
        "engine.step:_run_nodes",
        "work.store(deltas)",
        "pass",
    ),
    Mutant(
        "stored rows are late when they are fed",
        "engine.step:_deltas",
        "None if task.is_old else task.watermark_us",
        "task.watermark_us",
    ),
    Mutant(
        "a migration ends before all rows are fed",
        "adaptation.migration:next_step",
        "if going.fed < plan.partitions:",
        "if going.fed < plan.partitions // 2:",
    ),
    Mutant(
        "stored rows are fed twice",
        "epoch.after:manifest_after",
        "fed=high",
        "fed=max(after.migration.fed + 1, high - 1)",
    ),
    Mutant(
        "stored rows are not pinned",
        "epoch.migrating:switched",
        "if name in state}}",
        "if False}}",
    ),
    Mutant(
        "stores that were built are forgotten at the end",
        "epoch.migrating:_taken",
        "if mine := state.get(replace_track(name, BUILD), ()):",
        "if mine := ():",
    ),
    Mutant(
        "a stage that builds waits for results that nobody sends",
        "plan.transition:_joins",
        "if any(place.stage in joins for place in others):",
        "if False:",
    ),
    Mutant(
        "the plan that is built emits results",
        "plan.transition:_silent",
        "is_silent=not joins",
        "is_silent=False",
    ),
    Mutant(
        "rows are counted where state is built",
        "plan.stages:JoinPlan.places",
        "return sorted(found, key=lambda place: self.stages[place.stage].is_built)",
        "return found",
    ),
]
