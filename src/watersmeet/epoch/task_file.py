"""The tasks of an epoch in one file: every task reads its own part, however many slots there are.

    "WTSK" | stages | slots | where each part begins and ends (stage by stage) | parts, as JSON | what was dropped

The last part is what the memory tier of a host is swept by (`state/host_sweep.py`): one task per host reads it. The
file lives as long as the epoch's job, and is worth no sync: after a crash another one is written.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from watersmeet.epoch.task import SlotReport, SlotTask
from watersmeet.state.groups import Groups
from watersmeet.state.host_sweep import Dropped
from watersmeet.state.manifest import ResultFile, SegmentRef, extent_of, extent_values
from watersmeet.state.storage import writing

MAGIC = b"WTSK"
_HEAD = struct.Struct("<4sIII")
_PLACE = struct.Struct("<QQ")


def write_tasks(path: Path, tasks: Mapping[int, Sequence[SlotTask]], dropped: Dropped) -> None:
    """Write the tasks of the stages that run, which are consecutive."""
    first, slots = min(tasks), len(next(iter(tasks.values())))
    parts = [json.dumps(_task_value(task)).encode() for stage in sorted(tasks) for task in tasks[stage]]
    parts.append(json.dumps({str(epoch): list(names) for epoch, names in dropped.items()}).encode())
    start = _HEAD.size + _PLACE.size * len(parts)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(_HEAD.pack(MAGIC, first, slots, len(parts)))
            for part in parts:
                file.write(_PLACE.pack(start, len(part)))
                start += len(part)
            file.writelines(parts)


def read_task(path: Path, stage: int, partition: int) -> SlotTask:
    """What the task of a partition has to do in a stage; slots are partitions, counted around."""
    with path.open("rb") as file:
        _, first, slots, _ = _HEAD.unpack(file.read(_HEAD.size))
        value = json.loads(_part(file, (stage - first) * slots + partition % slots))
    return _task(value)


def read_dropped(path: Path) -> dict[int, list[str]]:
    with path.open("rb") as file:
        *_, parts = _HEAD.unpack(file.read(_HEAD.size))
        return {int(epoch): names for epoch, names in json.loads(_part(file, parts - 1)).items()}


def report_to_json(report: SlotReport) -> str:
    value = asdict(replace(report, extents=()))
    value["extents"] = [extent_values(extent) for extent in report.extents]
    return json.dumps(value)


def report_from_json(text: str) -> SlotReport:
    value = json.loads(text)
    value["extents"] = tuple(extent_of(entry) for entry in value["extents"])
    value["segments"] = tuple(SegmentRef(**entry) for entry in value["segments"])
    value["seen"] = {name: tuple(seen) for name, seen in value["seen"].items()}
    value["files"] = tuple(ResultFile(**entry) for entry in value["files"])
    return SlotReport(**value)


def _part(file: BinaryIO, number: int) -> bytes:
    file.seek(_HEAD.size + _PLACE.size * number)
    start, length = _PLACE.unpack(file.read(_PLACE.size))
    file.seek(start)
    return file.read(length)


def _task_value(task: SlotTask) -> dict[str, Any]:
    value = {field.name: getattr(task, field.name) for field in fields(SlotTask)}
    value["extents"] = [extent_values(extent) for extent in task.extents]
    value["reads"] = [[extent_values(extent) for extent in part] for part in task.reads]
    value["segments"] = [[ref.name, ref.bytes, ref.crc] for ref in task.segments.values()]
    value["groups"] = task.groups.edges
    return value


def _task(value: dict[str, Any]) -> SlotTask:
    value["extents"] = tuple(map(extent_of, value["extents"]))
    value["reads"] = tuple(tuple(map(extent_of, part)) for part in value["reads"])
    value["segments"] = {entry[0]: SegmentRef(*entry) for entry in value["segments"]}
    value["groups"] = Groups.of_edges(value["groups"])
    for name in ("holds", "spill"):
        value[name] = tuple(value[name])
    value["clean"] = None if value["clean"] is None else tuple(value["clean"])
    return SlotTask(**value)
