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
        "stored rows move the watermark",
        "engine.expiry:watermark_bound",
        "is_old = task.build is not None",
        "is_old = False",
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
        "if self._building is not None:",
        "if False:",
    ),
    Mutant(
        "a restart forgets a migration",
        "runtime.inprocess:InProcessQuery.__init__",
        "if known is not None and known.trees != plan_text(self.plan):",
        "if False:",
    ),
    Mutant(
        "a build counts as results",
        "epoch.kinds:shows",
        "case Takeover() | Build():\n            return False",
        "case Takeover():\n            return False\n        case Build():\n            return True",
    ),
]
