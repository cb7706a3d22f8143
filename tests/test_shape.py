"""The shape of the source: small files, small functions, a purpose at the head of each module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
FILES = {str(path.relative_to(PROJECT)): path for path in sorted((PROJECT / "src").rglob("*.py"))}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "base", "impl", "misc"}


def faults(name: str, source: str) -> list[str]:
    """What is wrong with the shape of one file."""
    tree = ast.parse(source)
    found = []
    if (lines := len(source.splitlines())) > MAX_FILE_LINES:
        found.append(f"{lines} lines, of at most {MAX_FILE_LINES}: which 'and' does it hold?")
    if tree.body and not ast.get_docstring(tree):
        found.append("no docstring that says what the module owns")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"line {node.lineno}: {node.name} has {length} lines, of at most {MAX_FUNCTION_LINES}")
    for number, line in enumerate(source.splitlines(), 1):
        if re.search(r"#.*\b(TODO|FIXME|XXX|HACK)\b", line):
            found.append(f"line {number}: unfinished")
    found += [f"{part!r} says nothing of what is inside" for part in Path(name).with_suffix("").parts if part in VAGUE]
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_a_purpose_and_stays_small(name: str) -> None:
    assert faults(name, FILES[name].read_text()) == []


DOCSTRING = '"""Owns one thing."""\n'
LONG_FUNCTION = "def append():\n" + "    pass\n" * MAX_FUNCTION_LINES

PLANTED = [
    ("src/journal.py", DOCSTRING + "\n" * MAX_FILE_LINES, "401 lines"),
    ("src/journal.py", "import struct\n", "no docstring"),
    ("src/journal.py", DOCSTRING + LONG_FUNCTION, "append has 51 lines"),
    ("src/journal.py", DOCSTRING + LONG_FUNCTION.replace("def", "async def"), "append has 51 lines"),
    ("src/journal.py", DOCSTRING + "a = 1  # TO" + "DO: more\n", "line 2: unfinished"),
    ("src/utils.py", DOCSTRING, "'utils'"),
    ("src/common/journal.py", DOCSTRING, "'common'"),
]


@pytest.mark.parametrize(("name", "source", "complaint"), PLANTED)
def test_a_planted_fault_is_found(name: str, source: str, complaint: str) -> None:
    (found,) = faults(name, source)
    assert complaint in found


def test_a_file_at_the_limits_has_no_fault() -> None:
    function = "def append():\n" + "    pass\n" * (MAX_FUNCTION_LINES - 1)
    source = DOCSTRING + function
    assert faults("src/journal.py", source + "\n" * (MAX_FILE_LINES - len(source.splitlines()))) == []
    assert faults("src/__init__.py", "") == []
