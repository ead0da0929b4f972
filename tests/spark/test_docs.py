"""The examples of README.md and docs/*.md, run one after the other, each document in a folder of its own.

python    is executed, all blocks in one namespace, which has `spark`
sql       is run over the sample streams
text      must be in what the python block above it has printed, line by line, in this order
console   after `$ ` is a command, up to where its quotes and backslashes end; the lines below must be in its output, in
          this order, and `...` stands for any

Blocks of no kind are pictures, and commands of `make`.
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from watersmeet import StreamJoin
from watersmeet.cli import main
from watersmeet.query.cql import read_sql
from watersmeet.runtime.spark.stream_join import pieces_of
from watersmeet.sample_data import BANKS, SHOP

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Block:
    kind: str
    line: int
    text: str


def blocks_of(document: str) -> list[Block]:
    text = (ROOT / document).read_text()
    return [
        Block(found[1], text[: found.start()].count("\n") + 2, found[2])
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


def commands(text: str) -> list[tuple[list[str], list[str]]]:
    """The commands of a console block, each with the output that is shown."""
    found: list[tuple[list[str], list[str]]] = []
    waiting = ""
    for line in text.splitlines():
        if line.startswith("$ ") or waiting:
            waiting += line.removeprefix("$ ") + "\n"
            try:
                words = [] if waiting.endswith("\\\n") else shlex.split(waiting.replace("\\\n", " "))
            except ValueError:  # a quote is open
                words = []
            if words:
                found.append((words, []))
                waiting = ""
        else:
            found[-1][1].append(line)
    return found


def test_there_are_examples_of_every_kind():
    assert {block.kind for block in blocks_of("docs/queries.md")} == {"python", "sql", "text", "console"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_run(document, spark, tmp_path, monkeypatch, capsys):
    """In one test for each document, since later examples read what earlier ones have made."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    namespace = {"spark": spark}
    printed = ""
    for block in blocks_of(document):
        where = f"{document}, line {block.line}"
        match block.kind:
            case "python":
                # Spark runs in the folder in which the tests were started, and paths are those of Spark
                source = "\n" * (block.line - 1) + block.text.replace('"data/', f'"{tmp_path}/data/')
                capsys.readouterr()
                exec(compile(source, where, "exec"), namespace)
                printed = capsys.readouterr().out
            case "text":
                check_said(printed, block.text.splitlines(), where)
            case "sql":
                run_sql(spark, block.text, tmp_path / "data")
            case "console":
                for words, shown in commands(block.text):
                    run_command(capsys, words, shown, where)


def run_sql(spark, text: str, data: Path) -> None:
    used = {item.source for item in read_sql(text).streams}
    streams = {
        name: spark.readStream.schema(spark.read.parquet(f"{data / name}").schema).parquet(f"{data / name}")
        for name in (*BANKS, *SHOP)
        if name in used
    }
    join = StreamJoin(spark).sql(text, **streams)
    aggregate = pieces_of(join).build()[1].aggregate
    mode = "append" if aggregate is None else aggregate.mode
    query = join.writeStream.format("noop").outputMode(mode).trigger(availableNow=True).start()
    query.awaitTermination()
    state = query.lastProgress["stateOperators"][0]
    assert state["customMetrics"]["results"] + state["numRowsTotal"] > 0


def run_command(capsys, words: list[str], shown: list[str], where: str) -> None:
    assert words[0] == "watersmeet", where
    capsys.readouterr()
    code = main(words[1:])
    captured = capsys.readouterr()
    print(captured.out, captured.err)
    assert code == (1 if any(line.startswith("watersmeet: ") for line in shown) else 0), (where, captured.err)
    check_said(captured.out + captured.err, shown, where)


def check_said(text: str, shown: list[str], where: str) -> None:
    said = iter(text.splitlines())
    for line in shown:
        assert line == "..." or any(line.rstrip() == other.rstrip() for other in said), f"{where}: '{line}' is not said"
