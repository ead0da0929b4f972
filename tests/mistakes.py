"""Mistakes with the messages that answer them, as text files in tests/golden/mistakes.

    == an option misspelt
    --- code
    join.option("memoryBugdet", "1g")
    --- message
    [UNKNOWN_OPTION] unknown option 'memoryBugdet'. did you mean 'memoryBudget'?

A mistake is Python code (`code`) or a command (`command`). WATERSMEET_GOLDEN=write writes the messages anew.
"""

import re
from pathlib import Path

from tests.golden_queries import checked, read_cases

FOLDER = Path(__file__).parent / "golden" / "mistakes"
TRACES = re.compile(
    r"""Traceback | File\ " | ^\s*at\ [\w.$]+\( | \borg\.apache\.\w+\. | \bjava\.\w+\. | \bscala\. | \bpy4j\b
    | (?:Type|Attribute|Assertion|Runtime)Error | Exception\b""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
"""What shows that an error was not meant for people."""


def mistakes(*areas: str) -> list[tuple[str, str]]:
    """The mistakes of some files, by area and title."""
    return [(area, title) for area in areas for title in read_cases(FOLDER / f"{area}.txt")]


def mistake(area: str, title: str, section: str) -> str:
    return read_cases(FOLDER / f"{area}.txt")[title][section]


def expected_message(area: str, title: str, found: str) -> str:
    """What the file says; written anew first, if files are written."""
    return checked(FOLDER / f"{area}.txt", title, "message", found)
