"""Checks DESIGN.md against the source: every file, function and class that it names exists, and the table of folders is
the one made from the docstrings of the packages. `python -m tools.design` rewrites the table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parent.parent
SOURCE = PROJECT / "src"
PAGE = PROJECT / "DESIGN.md"
BEGIN, END = "<!-- folders: made by python -m tools.design -->", "<!-- end of folders -->"


def folder_table() -> str:
    """Returns the packages with the first sentence of their docstrings, as a table."""
    rows = ["| folder | owns |", "|---|---|"]
    for path in sorted(SOURCE.rglob("__init__.py")):
        folder = path.parent.relative_to(SOURCE)
        purpose = ast.get_docstring(ast.parse(path.read_text())) or ""
        rows.append(f"| `{folder}/` | {_first_sentence(purpose)} |")
    return "\n".join(rows)


def packages_without_purpose() -> list[str]:
    return [
        str(path.parent.relative_to(SOURCE))
        for path in sorted(SOURCE.rglob("__init__.py"))
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]


def _first_sentence(docstring: str) -> str:
    text = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", text)[0]


def shown_table(page: str) -> str:
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def with_table(page: str, table: str) -> str:
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def faults(page: str) -> Iterator[str]:
    """Yields the names in `page` that the source does not have. A reference is `path.py`, or `name` (`path.py`) with a
    function, a class or Class.method of that file; paths are below src/trimq, or below the project."""
    for path in re.findall(r"`([\w/]+\.py)`", page):
        if _find(path) is None:
            yield f"there is no {path}"
    for names, path in re.findall(r"((?:`[\w.]+`,? ?(?:and )?)+)\(`([\w/]+\.py)`\)", page):
        file = _find(path)
        known = set() if file is None else set(_names(ast.parse(file.read_text())))
        yield from (f"{path} has no {name}" for name in re.findall(r"`([\w.]+)`", names) if name not in known)


def _find(path: str) -> Path | None:
    return next((found for folder in (SOURCE / "trimq", SOURCE, PROJECT) if (found := folder / path).is_file()), None)


def _names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(), folder_table()))
