"""Sinks meet one protocol: nothing asks for the class of a sink."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "watersmeet"


def asked_classes(path: Path) -> list[str]:
    """The classes that a module asks for by `isinstance`."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    found = [call.args[1] for call in calls if ast.unparse(call.func) == "isinstance"]
    return [name for each in found for name in ast.unparse(each).replace("(", " ").replace(")", " ").split()]


def test_nothing_asks_for_the_class_of_a_sink():
    asked = {name.strip(",") for path in SOURCE.rglob("*.py") for name in asked_classes(path)}
    assert "StructType" in asked
    assert {name for name in asked if name.endswith("Sink")} == set()
