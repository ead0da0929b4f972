"""A file of results that a task has written, as its report names it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartFile:
    path: str
    bytes: int
    modified_ms: int
