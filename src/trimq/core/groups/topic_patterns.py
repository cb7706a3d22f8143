"""Regular expressions that clients send, compiled and matched by RE2: the time of a match grows with the length of the
name, not exponentially as with `re`, so no pattern stops the broker. Owns the limits on size and the differences
between RE2 and RE2/J, which Kafka uses. Knows neither topics nor protocols. RE2 is imported with the first pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from trimq.errors.groups import InvalidPattern

# The event loop waits while RE2 works. The slowest patterns found: 22 ms to compile one of this length, 6 ms to match a
# name of 249 characters within this memory. Common patterns take 1 to 2 µs for a name.
MAX_CHARACTERS = 1_024
MAX_MEMORY_BYTES = 64 * 1024

# Syntax in which RE2 and RE2/J differ, and quotations and classes, in which the same characters mean something else.
_PARTS = re.compile(
    r"""(?P<quotation> \\Q .*? (?: \\E | \Z ) )
    | (?P<escape> \\ . )
    | (?P<character_class> \[ \^? \]? (?: \[: \^? \w+ :\] | \\ . | [^\]\\] )* (?: \] | \Z ) )
    | \( \? P? < (?P<group_name> \w+ ) >""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Pattern:
    """One compiled pattern. The constructor raises `InvalidPattern`."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise InvalidPattern(text, f"it has {len(text)} characters, the limit is {MAX_CHARACTERS}")
        self.text = text
        self._compiled = _compile(text)

    def matches(self, name: str) -> bool:
        """True if the pattern matches the whole name."""
        return self._compiled.fullmatch(name.encode()) is not None


class PatternCache:
    """Compiled patterns of one group, and the names that each of them matches. Members with the same pattern share the
    work, which is repeated only after the names have changed."""

    def __init__(self) -> None:
        self._compiled: dict[str, Pattern] = {}
        self._matched: dict[str, tuple[int, frozenset[str]]] = {}  # by pattern: revision and names

    def add(self, text: str, in_use: Iterable[str]) -> None:
        """Compiles the pattern or raises `InvalidPattern`. A new pattern evicts those that are not in use."""
        if text in self._compiled:
            return
        pattern = Pattern(text)
        kept = set(in_use)
        self._compiled = {known: each for known, each in self._compiled.items() if known in kept}
        self._matched = {known: each for known, each in self._matched.items() if known in kept}
        self._compiled[text] = pattern

    def match(self, text: str, names: Iterable[str], revision: int) -> frozenset[str]:
        """Returns the names that the pattern matches. `revision` differs whenever `names` does. A pattern that an
        earlier release accepted and stored, and that is invalid now, matches none."""
        matched_revision, matched = self._matched.get(text, (None, frozenset[str]()))
        if matched_revision == revision:
            return matched
        try:
            pattern = self._compiled.get(text) or Pattern(text)
        except InvalidPattern:
            matched = frozenset()
        else:
            self._compiled[text] = pattern
            matched = frozenset(filter(pattern.matches, names))
        self._matched[text] = revision, matched
        return matched


def _compile(text: str) -> Any:
    # A shared library of 1.5 MB, which a broker without such patterns does not load.
    import re2

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.never_capture = True  # with captures a match does not use the DFA
    options.log_errors = False  # RE2 would write to stderr
    try:
        compiled = re2.compile(_from_re2j(text), options)
    except re2.error as error:
        raise InvalidPattern(text, str(error.args[0], "utf-8", "replace")) from None
    re2.purge()  # the library would keep the last 128 patterns in memory
    if compiled.groups:
        raise InvalidPattern(text, "group names consist of ASCII letters, digits and underscores")
    return compiled


def _from_re2j(text: str) -> str:
    """Returns the pattern as RE2 has to read it in order to match as RE2/J does."""
    group_names: set[str] = set()

    def translate(part: re.Match[str]) -> str:
        if part[0] == r"\C":
            raise InvalidPattern(text, r"invalid escape sequence: \C")  # RE2: any byte
        name = part["group_name"]
        if name is None:
            return part[0] if part["quotation"] else _ESCAPE.sub(_unescape, part[0])
        if name in group_names:
            raise InvalidPattern(text, f"duplicate group name: {name}")
        group_names.add(name)
        return "(?:"  # RE2 captures named groups even with `never_capture`

    return _PARTS.sub(translate, text)


def _unescape(escape: re.Match[str]) -> str:
    """Removes the backslash before a character beyond ASCII, which RE2 refuses."""
    return escape[0] if escape[1].isascii() else escape[1]
