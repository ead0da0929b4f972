"""The tasks of an epoch in one file: every task reads its own part, however many slots there are.

    "WTSK" | first stage | slots | number of parts | CRC-32 of these
           | for every part: where it begins, its length, its CRC-32
           | parts, as JSON (stage by stage) | dropped segments

A task reads and verifies its own part only. The last part tells which segments to remove from the memory tier of a host
(`state/host_sweep.py`): one task per host reads it. The file lives as long as the epoch's job. It needs no sync: after
a crash another one is written.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO

from watersmeet.epoch.key_sketch import SketchedKey
from watersmeet.epoch.task import GroupFigure, InputRows, NodeInput, SlotReport, SlotTask, Worker
from watersmeet.state.damage import Damage, reading
from watersmeet.state.groups import Groups
from watersmeet.state.host_sweep import Dropped
from watersmeet.state.manifest import ResultFile, SegmentRef, extent_of, extent_values
from watersmeet.state.measures import Counts
from watersmeet.state.plain_files import open_new, open_to_read
from watersmeet.state.storage import writing

MAGIC = b"WTSK"
_HEAD = struct.Struct("<4sIII")
_CRC = struct.Struct("<I")
_PLACE = struct.Struct("<QQI")
_START = _HEAD.size + _CRC.size
HINT = "start the query again: it goes on where it was"


def write_tasks(path: Path, tasks: Mapping[int, Sequence[SlotTask]], dropped: Dropped) -> None:
    """Write the tasks of the stages that run; their numbers are consecutive."""
    first, slots = min(tasks), len(next(iter(tasks.values())))
    parts = [json.dumps(_task_value(task)).encode() for stage in sorted(tasks) for task in tasks[stage]]
    parts.append(json.dumps({str(epoch): list(names) for epoch, names in dropped.items()}).encode())
    start = _START + _PLACE.size * len(parts)
    head = _HEAD.pack(MAGIC, first, slots, len(parts))
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_new(path) as file:
            file.write(head + _CRC.pack(zlib.crc32(head)))
            for part in parts:
                file.write(_PLACE.pack(start, len(part), zlib.crc32(part)))
                start += len(part)
            file.writelines(parts)


def read_task(path: Path, stage: int, partition: int) -> SlotTask:
    """The task of a Spark partition in a stage; its slot is the partition modulo the number of slots."""
    with reading(path, HINT), open_to_read(path) as file:
        first, slots, _ = _head(file)
        return _task(json.loads(_part(file, (stage - first) * slots + partition % slots)))


def read_dropped(path: Path) -> dict[int, list[str]]:
    with reading(path, HINT), open_to_read(path) as file:
        *_, parts = _head(file)
        return {int(epoch): names for epoch, names in json.loads(_part(file, parts - 1)).items()}


def report_to_json(report: SlotReport) -> str:
    value = {field.name: getattr(report, field.name) for field in fields(SlotReport)}
    value["extents"] = [extent_values(extent) for extent in report.extents]
    value["segments"] = [[ref.name, ref.bytes, ref.crc] for ref in report.segments]
    value["counts"] = report.counts.by_name()
    value["groups"] = [[*figure, *found] for figure, found in report.groups.items()]
    value["inputs"] = [[*at, *rows] for at, rows in report.inputs.items()]
    value["files"] = [asdict(file) for file in report.files]
    value["sketches"] = [[*key, base64.b64encode(found).decode()] for key, found in report.sketches.items()]
    return json.dumps(value)


def report_from_json(text: str) -> SlotReport:
    value = json.loads(text)
    value["extents"] = tuple(extent_of(entry) for entry in value["extents"])
    value["segments"] = tuple(SegmentRef(*entry) for entry in value["segments"])
    value["counts"] = Counts.named(value["counts"])
    value["groups"] = {GroupFigure(*figure): (groups, found) for *figure, groups, found in value["groups"]}
    value["inputs"] = {NodeInput(*at): InputRows(there, new) for *at, there, new in value["inputs"]}
    value["seen"] = {name: tuple(seen) for name, seen in value["seen"].items()}
    value["files"] = tuple(ResultFile(**entry) for entry in value["files"])
    value["worker"] = Worker(*value["worker"])
    value["sketches"] = {SketchedKey(s, tuple(classes)): base64.b64decode(f) for s, classes, f in value["sketches"]}
    return SlotReport(**value)


def _head(file: BinaryIO) -> tuple[int, int, int]:
    """First stage, slots, number of parts."""
    head, crc = file.read(_HEAD.size), file.read(_CRC.size)
    if len(crc) < _CRC.size or _CRC.unpack(crc)[0] != zlib.crc32(head):
        raise Damage("its checksum does not match its bytes")
    magic, first, slots, parts = _HEAD.unpack(head)
    if magic != MAGIC:
        raise Damage("it is not a file of tasks")
    return first, slots, parts


def _part(file: BinaryIO, number: int) -> bytes:
    file.seek(_START + _PLACE.size * number)
    place = file.read(_PLACE.size)
    start, length, crc = _PLACE.unpack(place) if len(place) == _PLACE.size else (0, 0, 1)
    size = file.seek(0, os.SEEK_END)
    file.seek(min(start, size))
    part = file.read(min(length, size))
    if len(part) != length or zlib.crc32(part) != crc:
        raise Damage("its checksum does not match its bytes")
    return part


def _task_value(task: SlotTask) -> dict[str, Any]:
    value = {field.name: getattr(task, field.name) for field in fields(SlotTask)}
    value["extents"] = [extent_values(extent) for extent in task.extents]
    value["reads"] = [[extent_values(extent) for extent in part] for part in task.reads]
    value["segments"] = [[ref.name, ref.bytes, ref.crc] for ref in task.segments.values()]
    value["groups"] = task.groups.edges
    value["lacks"] = [[store, groups.edges] for store, groups in task.lacks]
    value["foreign"], value["dropped"] = sorted(task.foreign), sorted(task.dropped)
    return value


def _task(value: dict[str, Any]) -> SlotTask:
    value["extents"] = tuple(map(extent_of, value["extents"]))
    value["reads"] = tuple(tuple(map(extent_of, part)) for part in value["reads"])
    value["segments"] = {entry[0]: SegmentRef(*entry) for entry in value["segments"]}
    value["groups"] = Groups.of_edges(value["groups"])
    value["lacks"] = tuple((store, Groups.of_edges(edges)) for store, edges in value["lacks"])
    value["foreign"], value["dropped"] = frozenset(value["foreign"]), frozenset(value["dropped"])
    for name in ("holds", "spill"):
        value[name] = tuple(value[name])
    value["sketches"] = tuple(map(tuple, value["sketches"]))
    value["build"] = None if value["build"] is None else tuple(value["build"])
    for name in ("clean", "completes"):
        value[name] = None if value[name] is None else tuple(value[name])
    return SlotTask(**value)
