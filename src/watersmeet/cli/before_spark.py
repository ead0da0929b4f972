"""Checks of a command before Spark is started, which takes seconds: the master, settings and packages, options of the
join with their values, and the folders of results and state."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from watersmeet.cli.specs import FILES, SinkSpec
from watersmeet.errors import OptionError
from watersmeet.runtime.spark.option_places import require_option_of_join, require_options_of_writer
from watersmeet.runtime.spark.options import KNOWN, option_name, read_options
from watersmeet.runtime.spark.session_settings import options_in
from watersmeet.runtime.spark.sink_places import not_writable
from watersmeet.state.folder_checks import cannot_keep_state, obstacle_to_folder
from watersmeet.state.storage import is_local, local_path

_COUNT = r"(\*|[1-9]\d*)"
MASTER = re.compile(rf"local(\[{_COUNT}(,\s*\d+)?\])?|local-cluster\[[\d,\s]+\]|yarn|(spark|k8s)://.+")
MASTERS = ("local", "local[*]", "local[2]", "yarn", "spark://host:7077", "k8s://https://host:443")
_PACKAGE = re.compile(r"[^:\s]+:[^:\s]+:[^:\s]+")


def check_spark(master: str, conf: Mapping[str, str], packages: str | None) -> None:
    """OptionError for a session that could not start, or settings that would have no effect."""
    if not MASTER.fullmatch(master):
        near = difflib.get_close_matches(master, MASTERS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"masters look like {', '.join(MASTERS)}"
        raise OptionError(f"'{master}' is no Spark master", hint=hint, error_class="INVALID_MASTER")
    for name in conf:
        if not name.startswith("spark."):
            known = {option.lower(): option for option in KNOWN}
            hint = f"write --option {known[name.lower()]}=VALUE" if name.lower() in known else "look at its spelling"
            raise OptionError(f"--conf {name}: settings of Spark begin with 'spark.'", hint=hint)
    for package in (packages or "").split(","):
        if packages is not None and not _PACKAGE.fullmatch(package.strip()):
            raise OptionError(
                f"'{package}' is no package",
                hint="write --packages group:artifact:version, with commas between several",
            )


def check_options(options: Sequence[tuple[str, str]], conf: Mapping[str, str]) -> None:
    """OptionError for an unknown option of the join, or an invalid value."""
    given = {}
    for name, value in options:
        require_option_of_join(name)
        given[option_name(name)] = value
    read_options({**options_in(conf, KNOWN), **given}, parallelism=1)


def check_sink(sink: SinkSpec, checkpoint: str | None) -> None:
    """WatersmeetError if the folder of results or state cannot be used, as far as the driver's host can tell."""
    require_options_of_writer(sink.options, KNOWN, are_all_known=sink.format != "kafka")
    if sink.format in FILES and is_local(sink.location):
        path = os.path.abspath(local_path(sink.location))
        if (obstacle := obstacle_to_folder(Path(path))) is not None:
            raise not_writable(path, obstacle)
    if checkpoint is not None:
        place = local_path(checkpoint)
        if (obstacle := obstacle_to_folder(place)) is not None:
            raise cannot_keep_state(place, obstacle)
