"""Builds and compiles Python source, for `reader_compiler` and `writer_compiler`. Knows nothing of Kafka."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class CodeBuilder:
    """Lines of one function, and the global names that it uses."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        indent = "    " * self.depth
        self.lines += [indent + line for line in lines]

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Indents the lines added inside under the statement `opening`."""
        self.add(opening)
        self.depth += 1
        yield
        self.depth -= 1

    def name_of_struct(self, method: str, formats: str) -> str:
        """Returns the global name of a bound method of `struct.Struct` for these formats."""
        name = f"{method}_{formats.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + formats), method)
        return name

    def compile(self, title: str) -> Callable[..., Any]:
        """Compiles the one function that the source defines. Tracebacks show its lines."""
        text = "\n".join(self.lines) + "\n"
        filename = f"<{title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        defined: dict[str, Any] = {}
        exec(compile(text, filename, "exec"), self.names, defined)
        (function,) = defined.values()
        made: Callable[..., Any] = function
        return made
