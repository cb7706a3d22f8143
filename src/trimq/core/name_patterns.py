"""Regular expressions of policies and rights, searched for in names by RE2: the time of a search grows with the length
of the name, so no pattern stops the broker. Knows neither policies nor rights. RE2 is imported with the first
pattern."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from trimq.errors import InvalidSetting

log = logging.getLogger(__name__)

# The event loop waits while RE2 works. The slowest patterns found: 8 ms to compile, 5 ms to search a name of 255
# characters within this memory. Common patterns take 1 to 2 µs for a name.
MAX_CHARACTERS = 8_192
_MAX_MEMORY_BYTES = 256 * 1024

# Parts that RE2 reads differently, and quotations and classes, in which the same characters mean something else.
_PARTS = re.compile(
    r"""(?P<quotation> \\Q .*? (?: \\E | \Z ) )
    | (?P<escape> \\ . )
    | (?P<character_class> \[ \^? \]? (?: \[: \^? \w+ :\] | \\ . | [^\]\\] )* (?: \] | \Z ) )
    | (?P<end> \$ )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_MULTIPLE_LINES = re.compile(r"\(\?[a-zA-Z]*m")

# Constructs of Erlang's PCRE, which RabbitMQ uses, that take exponential time and that RE2 does not have.
_LACKING = re.compile(
    r"""(?P<lookaround> \(\? <? [=!] )
    | (?P<backreference> \\ [1-9] | \\ g | \\ k | \(\?P= )
    | (?P<atomic_group> \(\?> )
    | (?P<condition> \(\?\( )
    | (?P<recursion> \(\? (?: R | [+-]?\d | & | P> ) )
    | (?P<possessive_quantifier> [*+?}] \+ )""",
    re.VERBOSE,
)
_ANYTHING = (".*", "^.*$", "^.*", ".*$")

Search = Callable[[str], object]


class NamePattern:
    """One pattern, compiled when it is first used: a broker may have thousands. As in RabbitMQ, an empty pattern
    matches the empty name only."""

    __slots__ = ("_search", "_what", "text")

    def __init__(self, text: str, what: str) -> None:
        """`what`: the setting, for log messages."""
        self.text = text
        self._what = what
        self._search: Search | None = None

    def search(self, name: str) -> bool:
        if self._search is None:
            self._search = _stored_search(self.text, self._what)
        return bool(self._search(name))


def require_valid(what: str, text: str) -> None:
    """Raises InvalidSetting for a pattern that RE2 cannot search for."""
    if text not in ("", *_ANYTHING):
        _compile(what, text)


def _stored_search(text: str, what: str) -> Search:
    if text == "":
        return lambda name: name == ""
    if text in _ANYTHING:
        return lambda name: True
    try:
        compiled = _compile(what, text)
    except InvalidSetting as refusal:
        return _former_search(text, refusal)

    def search(name: str) -> object:
        return compiled.search(name.encode("utf-8", "surrogateescape"))

    return search


def _former_search(text: str, refusal: InvalidSetting) -> Search:
    """A pattern that an earlier release has accepted keeps its meaning, without the bound on its time."""
    try:
        compiled = re.compile(text)
    except (re.error, RecursionError, OverflowError):
        log.warning("pattern %r: matches no name (%s)", text, refusal)
        return lambda name: False
    log.warning("pattern %r: searched without a bound on its time; replace it (%s)", text, refusal)
    return compiled.search


def _compile(what: str, text: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise InvalidSetting(what, f"a pattern of {len(text)} characters exceeds the limit of {MAX_CHARACTERS}")
    # A shared library of 1.5 MB, which a broker without such patterns does not load.
    import re2

    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.never_capture = True  # with captures a search does not use the DFA
    options.log_errors = False  # RE2 would write to stderr
    try:
        return re2.compile(_as_re2(text), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidSetting(what, f"{text!r} is not a regular expression: {_explain(text, error)}") from None
    finally:
        re2.purge()  # the library would keep the last 128 patterns in memory


def _as_re2(text: str) -> str:
    """Returns the pattern as RE2 has to read it in order to search as PCRE does."""
    has_lines = _MULTIPLE_LINES.search(text) is not None

    def translate(part: re.Match[str]) -> str:
        if part["escape"]:
            escaped = part["escape"][1]
            if escaped == "Z":
                return r"(?:\n?\z)"
            return part[0] if escaped.isascii() else escaped
        if part["end"] and not has_lines:
            return r"(?:\n?\z)"  # also before a newline at the end
        return part[0]

    return _PARTS.sub(translate, text)


def _explain(text: str, error: Exception) -> str:
    lacking = _LACKING.search(text)
    if lacking is not None and lacking.lastgroup is not None:
        kind = lacking.lastgroup.replace("_", " ")
        return f"{kind} ({lacking[0]}) is not supported, because its time has no bound"
    reason = error.args[0]
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
