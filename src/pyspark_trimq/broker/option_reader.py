"""Reads the options that Spark hands to a source or a sink. Option names are case-insensitive, as everywhere in Spark.
Does not know which options exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark_trimq.mistakes import Mistake

T = TypeVar("T")


class OptionReader:
    """Raises Mistake for an option that is not in `names`."""

    def __init__(self, given: Mapping[str, str], names: tuple[str, ...]) -> None:
        self._names = {name.lower(): name for name in names}
        self._values = {name.lower(): str(value) for name, value in given.items()}
        unknown = [name for name in given if name.lower() not in self._names]
        if unknown:
            raise Mistake(f"there is no option {unknown[0]!r}; the options are {', '.join(names)}")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def required(self, name: str, example: str) -> str:
        value = self.text(name)
        if not value:
            raise Mistake(f"give the option {name}: {example}")
        return value

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value.strip())
        except ValueError as error:
            raise Mistake(f"the option {name} is {value!r}: {error}") from None
