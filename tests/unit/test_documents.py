"""The documents stay readable: short table cells, a short README, measured figures, links that lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.chart import runs

ROOT = Path(__file__).parents[2]
CELL_MAX = 200
README_LINES_MAX = 155
ARCHITECTURE_WORDS_MAX = 3000


def documents() -> list[str]:
    """The Markdown files that git knows, also those not committed yet; all that there are, where there is no git."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    known = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    found = (f"{path.relative_to(ROOT)}" for path in ROOT.rglob("*.md"))
    return sorted(known or (name for name in found if not name.startswith(".")))


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def cells(text: str) -> list[str]:
    rows = [line for line in without_code(text).splitlines() if line.startswith("|")]
    return [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]


def anchor(heading: str) -> str:
    """The name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", documents())
def test_table_cells_are_short(document):
    assert [cell for cell in cells(text_of(document)) if len(cell) > CELL_MAX] == []


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document):
    text = without_code(text_of(document))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, place = target.partition("#")
        found = (ROOT / document).parent / path if path else ROOT / document
        assert found.exists(), target
        headings = re.findall(r"^#+ (.*)$", without_code(found.read_text()), re.MULTILINE) if place else []
        assert not place or place in [anchor(heading) for heading in headings], target


def test_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= README_LINES_MAX


def test_architecture_is_short():
    words = [word for word in text_of("ARCHITECTURE.md").split() if re.search(r"\w", word)]
    assert len(words) <= ARCHITECTURE_WORDS_MAX


def test_readme_gives_the_range_of_the_recorded_runs():
    """`3.1 to 3.2 times` and the like, as `benchmarks/chart.py` has them."""
    text = text_of("README.md")
    found = runs()
    for name, digits in (
        ("spark_default_store", 0),
        ("spark_rocksdb", 0),
        ("spark_chain", 1),
        ("duckdb", 1),
        ("state_growth", 1),
    ):
        assert f"{found[name][0]:.{digits}f} to {found[name][-1]:.{digits}f}" in text, name


def test_architecture_names_files_that_exist():
    for name in re.findall(r"`([a-z_/]+\.py)`", text_of("ARCHITECTURE.md")):
        assert list((ROOT / "src" / "watersmeet").glob(f"**/{name}")) or (ROOT / name).exists(), name


def headings(document: str) -> str:
    return "\n".join(re.findall(r"^(?:#+ |\*\*)(.*)$", without_code(text_of(document)), re.MULTILINE))


def test_readme_has_its_parts():
    assert "▶ Spark shuffles" in text_of("README.md")
    assert re.findall(r"^make \w+", text_of("README.md"), re.MULTILINE) == ["make demo", "make test"]
    assert "**Inner joins only**" in text_of("README.md")
    assert re.search(r"!\[[^]]+\]\(docs/how_fast\.svg\)", text_of("README.md"))
    for part in ("Twenty lines", "What it can do", "What it cannot do", "Options", "How fast", "Read on"):
        assert part in headings("README.md")


def test_contributing_says_how_to_add_things():
    for part in ("Set-up", "The layers", "a spill policy.", "a scenario.", "a mutant.", "an option."):
        assert part in headings("CONTRIBUTING.md")
