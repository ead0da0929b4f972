"""What an entry of a schedule asks for, as values of the engine: plans, spills, moves, adaptations."""

import re
from collections import defaultdict
from collections.abc import Iterable

from tests.scenarios import ALL_GROUPS, Scenario, Setting
from tests.staging import drawn_orders
from watersmeet.adaptation.migration import AUTO
from watersmeet.adaptation.rehearsal import parse_script
from watersmeet.epoch.goals import Asked
from watersmeet.epoch.kinds import Spill
from watersmeet.epoch.relocation import fitting
from watersmeet.plan.placement import Move, Placement
from watersmeet.plan.spillable import spillable_stages
from watersmeet.plan.stages import JoinPlan, plan_join
from watersmeet.plan.tree import parse_tree
from watersmeet.state.manifest import Manifest


def target(scenario: Scenario, entry: str, setting: Setting) -> tuple[JoinPlan, str]:
    """The plan and the strategy that an entry of a schedule names, as in `rehearse`."""
    end = entry.rindex(")") + 1
    trees = tuple(parse_tree(text, [s.name for s in scenario.query.streams]) for text in entry[:end].split("|"))
    orders = drawn_orders(scenario.query, trees, setting)
    plan = plan_join(scenario.query, trees, setting.partitions, scenario.mode, orders)
    return plan, entry[end:].strip() or AUTO


def asked(scenario: Scenario, text: str, setting: Setting) -> list[Asked]:
    """What a schedule asks for: the goals of the entries of a script, for slots that there are."""
    slots = min(setting.slots, setting.partitions)
    text = re.sub(r"(relocate|spill) (\d+)", lambda found: f"{found[1]} {int(found[2]) % slots}", text)
    text = re.sub(r"(relocate \d+) (\d+)", lambda found: f"{found[1]} {int(found[2]) % slots}", text)
    parts = [part for part in text.split(";") if not re.search(r"relocate (\d+) \1 ", part)]
    script = "; ".join(f"0: {part}" for part in parts if part.strip())
    entries = parse_script(script, lambda plan: target(scenario, plan, setting)[0], slots)
    return [entry.goal for entry in entries]


def spilling(plan: JoinPlan, placement: Placement, pairs: Iterable[tuple[int, int]]) -> tuple[Spill, ...]:
    """Orders to close groups, given as (stage, group); both are taken modulo what there is."""
    stages = spillable_stages(plan)
    partitions, owners = plan.partitions, placement.owners
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for stage, named in pairs if stages else ():
        number = stages[stage % len(stages)]
        for group in range(partitions) if named == ALL_GROUPS else (named % partitions,):
            groups[number, owners[plan.key_of_stage(number)][group]].add(group)
    return tuple(Spill(stage, slot, tuple(sorted(chosen))) for (stage, slot), chosen in groups.items())


def moving(plan: JoinPlan, manifest: Manifest, named: Iterable[tuple[int, int, int]]) -> tuple[Move, ...]:
    """Moves of groups, given as (key, group, receiver); all are taken modulo what there is. None while the plan
    changes, and none of groups that cannot go to slots with other stores now."""
    if manifest.migration is not None:
        return ()
    keys, groups = sorted(manifest.placement.owners), defaultdict(list)
    chosen: dict[tuple[str, int], int] = {}
    for key, named_group, receiver in named:
        for group in range(plan.partitions) if named_group == ALL_GROUPS else (named_group % plan.partitions,):
            chosen[keys[key % len(keys)], group] = receiver % manifest.slots
    for (key, group), receiver in chosen.items():
        sender = manifest.placement.owners[key][group]
        if sender != receiver:
            groups[key, sender, receiver].append(group)
    return fitting(plan, manifest, (Move(*places, tuple(moved)) for places, moved in groups.items()))
