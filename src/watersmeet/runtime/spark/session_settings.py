"""Session defaults of join options: `spark.watersmeet.<option>`, names compared without case. A setting with an unknown
name is refused: it would have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from watersmeet.errors import unknown_name
from watersmeet.runtime.spark.option_places import require_option_of_join

PREFIX = "spark.watersmeet."


def session_options(spark: SparkSession, known: Iterable[str]) -> dict[str, str]:
    """The options set in the session, by their canonical names."""
    return options_in(spark.conf.getAll, known)


def options_in(settings: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """The options among the settings; OptionError for a misspelt or unknown name."""
    by_lower = {(PREFIX + name).lower(): name for name in known}
    found = {}
    for name, value in settings.items():
        if not name.lower().startswith(PREFIX):
            continue
        if name.lower() not in by_lower:
            require_option_of_join(name[len(PREFIX) :])
            spelled = [PREFIX + option for option in by_lower.values()]
            raise unknown_name("session setting", "session settings", name, spelled, "UNKNOWN_OPTION")
        found[by_lower[name.lower()]] = value
    return found
