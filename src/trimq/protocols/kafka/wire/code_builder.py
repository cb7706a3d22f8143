"""Python source under construction, for the functions that `reading` and `writing` compile, and its compilation. Knows
nothing of Kafka."""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class CodeBuilder:
    """Lines of one function, and the names it needs."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        indent = "    " * self.depth
        self.lines += [indent + line for line in lines]

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """The lines added inside belong to the statement `opening`."""
        self.add(opening)
        self.depth += 1
        yield
        self.depth -= 1

    def name_of_struct(self, method: str, formats: str) -> str:
        """The name under which a bound method of `struct.Struct` for these formats can be called."""
        name = f"{method}_{formats.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + formats), method)
        return name

    def compile(self, title: str) -> Callable[..., Any]:
        """Compile the one function the source defines. Tracebacks show its lines."""
        text = "\n".join(self.lines) + "\n"
        filename = f"<{title}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        defined: dict[str, Any] = {}
        exec(compile(text, filename, "exec"), self.names, defined)
        (function,) = defined.values()
        made: Callable[..., Any] = function
        return made
