"""The syntax of patterns, that of RE2 as far as names of topics need it: from a text to the states of an automaton.
Refuses what needs backtracking, and what would need more states than the limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from trimq.errors.groups import InvalidPattern

MOST_STATES = 500
_MOST_REPEATS = 1_000
_DEEPEST = 100

Test = Callable[[str], bool]


@dataclass(slots=True, eq=False)
class State:
    """`test` takes one character on the way to `ways`; without one they are reached at once, `at_start` and `at_end`
    only there. A state without ways is the end of the pattern."""

    test: Test | None = None
    ways: list[State] = field(default_factory=list)
    at_start: bool = False
    at_end: bool = False

    def takes(self, character: str) -> bool:
        return self.test is not None and self.test(character)


class Fragment(NamedTuple):
    """Part of an automaton: whoever comes to `last` goes on behind it."""

    first: State
    last: State


_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_UPPER = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SPACES = frozenset("\t\n\f\r ")
_PRINTED = frozenset(map(chr, range(0x21, 0x7F)))
_WORD = _LETTERS | _DIGITS | {"_"}
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_POSIX = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, [*range(32), 127])),
    "digit": _DIGITS,
    "graph": _PRINTED,
    "lower": _LETTERS - _UPPER,
    "print": _PRINTED | {" "},
    "punct": _PRINTED - _LETTERS - _DIGITS,
    "space": _SPACES | {"\v"},
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _DIGITS | frozenset("abcdefABCDEF"),
}
_FLAGS = frozenset("imsU")


class Parser:
    """Reads one pattern, once."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._states = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> Fragment:
        fragment = self._alternatives()
        if self._at < len(self._pattern):
            self._refuse("there is a ')' too many")
        return fragment

    # -- structure

    def _alternatives(self) -> Fragment:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse("it is nested too deeply")
        choices = [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        self._depth -= 1
        if len(choices) == 1:
            return choices[0]
        first, last = self._state(), self._state()
        for choice in choices:
            first.ways.append(choice.first)
            choice.last.ways.append(last)
        return Fragment(first, last)

    def _sequence(self) -> Fragment:
        first = last = self._state()
        while self._at < len(self._pattern) and self._peek() not in "|)":
            part = self._repeated()
            last.ways.append(part.first)
            last = part.last
        return Fragment(first, last)

    def _repeated(self) -> Fragment:
        start = self._at
        ignores_case = self._ignores_case
        fragment = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return fragment
        if (self._peek() and self._peek() in "*+") or self._is_counted():
            self._refuse("a repetition is repeated")
        end = self._at
        fragment = self._repeat(fragment, lambda: self._read_again(start, ignores_case), *bounds)
        self._at = end
        return fragment

    def _read_again(self, start: int, ignores_case: bool) -> Fragment:
        """Another copy of the part that begins at `start`."""
        self._at, self._ignores_case = start, ignores_case
        return self._atom()

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often the part before is repeated; None: once. The end None: any number of times."""
        bounds: tuple[int, int | None] | None = None
        if self._take("*"):
            bounds = 0, None
        elif self._take("+"):
            bounds = 1, None
        elif self._take("?"):
            bounds = 0, 1
        elif self._is_counted():
            bounds = self._count()
        if bounds is not None:
            self._take("?")  # as few as possible: for a match of the whole name it is the same
        return bounds

    def _is_counted(self) -> bool:
        text, _, rest = self._pattern[self._at + 1 :].partition("}")
        low, comma, high = text.partition(",")
        is_number = low.isdecimal() and low.isascii() and (not high or (high.isdecimal() and high.isascii()))
        return (
            self._peek() == "{"
            and is_number
            and f"{{{text}}}{rest}" == self._pattern[self._at :]
            and (bool(comma) or not high)
        )

    def _count(self) -> tuple[int, int | None]:
        text = self._pattern[self._at + 1 : self._pattern.index("}", self._at)]
        self._at += len(text) + 2
        low, comma, high = text.partition(",")
        least, most = int(low[:5]), int(high[:5]) if high else None
        if not comma:
            most = least
        if least > _MOST_REPEATS or (most is not None and not least <= most <= _MOST_REPEATS):
            self._refuse(f"it repeats {text} times")
        return least, most

    def _repeat(self, part: Fragment, copy: Callable[[], Fragment], least: int, most: int | None) -> Fragment:
        first = last = self._state()
        end = self._state()
        for number in range(max(least, 1) if most is None else most):
            if number:
                part = copy()
            last.ways.append(part.first)
            if number >= least:
                last.ways.append(end)
            last = part.last
        if most is None:
            last.ways.append(part.first)
        last.ways.append(end)
        return Fragment(first, end)

    # -- the smallest parts

    def _atom(self) -> Fragment:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._of(self._class())
        if character == ".":
            return self._of(lambda one: one != "\n")
        if character == "^":
            return self._anchor(at_start=True)
        if character == "$":
            return self._anchor(at_end=True)
        if character == "\\":
            return self._escaped()
        if character in "*+?":
            self._refuse("there is nothing to repeat")
        return self._literal(character)

    def _group(self) -> Fragment:
        ignores_case = self._ignores_case
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                name, closed, _ = self._pattern[self._at :].partition(">")
                if not closed or not name.isidentifier():
                    self._refuse("a group is not named as it should be")
                self._at += len(name) + 1
            elif self._flags():
                return self._nothing()  # they count from here on
        fragment = self._alternatives()
        if not self._take(")"):
            self._refuse("a ')' is missing")
        self._ignores_case = ignores_case
        return fragment

    def _flags(self) -> bool:
        """`i`, `m`, `s` and `U`, of which only the first matters to a name. True: the group ends with them."""
        is_on = True
        while True:
            flag = self._next()
            if flag == "-":
                is_on = False
            elif flag == "i":
                self._ignores_case = is_on
            elif flag in ":)":
                return flag == ")"
            elif flag not in _FLAGS:
                self._refuse("it looks around, or has a flag that is unknown")

    def _escaped(self) -> Fragment:
        letter = self._next()
        if letter == "A":
            return self._anchor(at_start=True)
        if letter == "z":
            return self._anchor(at_end=True)
        if letter.lower() in _CLASSES:
            return self._of(self._class_test(letter))
        if letter == "Q":
            return self._quoted()
        return self._literal(self._character(letter))

    def _quoted(self) -> Fragment:
        text, ended, _ = self._pattern[self._at :].partition("\\E")
        self._at += len(text) + (2 if ended else 0)
        first = last = self._state()
        for character in text:
            part = self._literal(character)
            last.ways.append(part.first)
            last = part.last
        return Fragment(first, last)

    def _character(self, letter: str) -> str:
        """The character that an escaped letter stands for."""
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "x":
            digits = self._next() + (self._next() if self._peek() else "")
            if digits.startswith("{"):
                more, _, _ = self._pattern[self._at :].partition("}")
                self._at += len(more) + 1
                digits = digits[1:] + more
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                self._refuse("a character is not numbered as it should be")
        if letter.isascii() and letter.isalnum():
            self._refuse(f"\\{letter} is not served")
        return letter

    def _class(self) -> Test:
        is_negated = self._take("^")
        tests: list[Test] = []
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._peek() == "[" and self._pattern.startswith("[:", self._at):
                tests.append(self._posix())
                continue
            low = self._next()
            if low == "\\":
                letter = self._next()
                if letter.lower() in _CLASSES:
                    tests.append(self._class_test(letter))
                    continue
                low = self._character(letter)
            ranges.append((low, self._range_end(low)))
        self._next()
        return _any_of(tests, ranges, is_negated, self._ignores_case)

    def _range_end(self, low: str) -> str:
        if self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("", "]"):
            return low
        self._next()
        high = self._next()
        if high == "\\":
            high = self._character(self._next())
        if high < low:
            self._refuse("a range ends before it begins")
        return high

    def _posix(self) -> Test:
        name, closed, _ = self._pattern[self._at + 2 :].partition(":]")
        self._at += len(name) + 4
        is_negated = name.startswith("^")
        members = _POSIX.get(name.removeprefix("^"))
        if not closed or members is None:
            self._refuse(f"there is no class [:{name}:]")
        return lambda one: (one in members) != is_negated

    def _class_test(self, letter: str) -> Test:
        members, is_negated = _CLASSES[letter.lower()], letter.isupper()
        return lambda one: (one in members) != is_negated

    # -- states

    def _literal(self, character: str) -> Fragment:
        if self._ignores_case:
            folded = character.casefold()
            return self._of(lambda one: one.casefold() == folded)
        return self._of(lambda one: one == character)

    def _of(self, test: Test) -> Fragment:
        first, last = self._state(), self._state()
        first.test = test
        first.ways.append(last)
        return Fragment(first, last)

    def _anchor(self, *, at_start: bool = False, at_end: bool = False) -> Fragment:
        first, last = self._state(), self._state()
        first.at_start, first.at_end = at_start, at_end
        first.ways.append(last)
        return Fragment(first, last)

    def _nothing(self) -> Fragment:
        state = self._state()
        return Fragment(state, state)

    def _state(self) -> State:
        self._states += 1
        if self._states > MOST_STATES:
            self._refuse("it is too large")
        return State()

    # -- characters of the pattern

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            self._refuse("it ends too early")
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidPattern(self._pattern, reason)


def _any_of(tests: list[Test], ranges: list[tuple[str, str]], is_negated: bool, ignores_case: bool) -> Test:
    def test(one: str) -> bool:
        forms = {one, one.lower(), one.upper()} if ignores_case else {one}
        found = any(low <= form <= high for form in forms for low, high in ranges) or any(each(one) for each in tests)
        return found != is_negated

    return test
