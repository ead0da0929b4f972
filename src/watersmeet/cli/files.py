"""Checks on the files of a stream before Spark is started: whether they exist, and which format they have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from watersmeet.cli.specs import FILES, StreamSpec
from watersmeet.errors import OptionError

LOOKED_AT = 1000
SUFFIXES = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".orc": "orc",
    ".txt": "text",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PATTERN = re.compile(r"[*\[{]")


def with_format(spec: StreamSpec) -> StreamSpec:
    """The spec with the format of its files and an absolute path, because Spark may run in another folder. OptionError
    if the files do not exist, or their names do not show a format."""
    if spec.format and spec.format not in FILES:
        return spec
    is_elsewhere = _ELSEWHERE.match(spec.location) is not None
    location = spec.location if is_elsewhere else os.path.abspath(spec.location)
    if is_elsewhere or _PATTERN.search(spec.location):
        if spec.format:
            return replace(spec, location=location)  # Spark will check
        raise OptionError(
            f"stream {spec.name}: the format of {spec.location} is not clear",
            hint=f"write it before the path: parquet:{spec.location}",
            error_class="UNKNOWN_FORMAT",
        )
    found = list(islice(_visible(_folder(spec)), LOOKED_AT))
    if not found and (spec.schema is None or not spec.format):
        lacks = "its columns" if spec.format else "its format"
        advice = "put its first file there, or name the columns: " if spec.format else "write it before the path, like "
        raise OptionError(
            f"stream {spec.name}: {spec.location} has no files yet, which would tell {lacks}",
            hint=f"{advice}'{spec.format or 'parquet'}:{spec.location}?schema=k bigint, ts timestamp'",
            error_class="EMPTY_FOLDER",
        )
    return replace(spec, format=spec.format or _guessed(spec, found), location=location)


def _folder(spec: StreamSpec) -> Path:
    path = Path(spec.location)
    if not path.exists():
        raise OptionError(
            f"stream {spec.name}: there is no folder {spec.location}",
            hint=f"name a folder with its files; paths start from {Path.cwd()}",
            error_class="FILE_NOT_FOUND",
        )
    if not path.is_dir():
        raise OptionError(
            f"stream {spec.name}: {spec.location} is a file, and a stream is a folder to which files are added",
            hint=f"name its folder, {path.parent}; with others in it, add ?pathGlobFilter={path.name}",
            error_class="NOT_A_FOLDER",
        )
    return path


def _visible(folder: Path) -> Iterator[Path]:
    """The files that Spark would read."""
    for path in folder.rglob("*"):
        hidden = any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _guessed(spec: StreamSpec, files: list[Path]) -> str:
    formats = {_format(path) for path in files}
    if len(formats) == 1 and (only := formats.pop()) is not None:
        return only
    raise OptionError(
        f"stream {spec.name}: the format of the files in {spec.location} is not clear ({files[0].name}, ...)",
        hint=f"write it before the path: one of {', '.join(f'{name}:{spec.location}' for name in FILES)}",
        error_class="UNKNOWN_FORMAT",
    )


def _format(path: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None
