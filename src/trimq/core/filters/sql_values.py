"""How the values of a selector compare. Properties are texts; compared with a constant they are read as what that is,
and one that cannot be read so spoils the whole expression. The rules are those of the Java types they are named for."""

from __future__ import annotations

import re

Value = None | bool | int | float | str

INT32, INT64 = 2**31 - 1, 2**63 - 1

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+[fFdD]?")
_BLANK = "".join(map(chr, range(33)))


class Incomparable(ValueError):
    """Two values of which nothing can be said: the message is not wanted."""


def compare(left: Value, right: Value) -> int:
    """Negative, zero or positive. Neither is None."""
    kinds = type(left), type(right)
    match kinds:
        case (a, b) if a is b:
            pass
        case (a, b) if a is bool and b is str:
            raise Incomparable("a truth and a text")
        case (a, _) if a is bool:
            return -1
        case (a, b) if a is str and b is bool:
            left = str(left).lower() == "true"
        case (_, b) if b is bool:
            return -1
        case (a, _) if a is str:
            left = _read_like(str(left), right)
        case (_, b) if b is str:
            right = _read_like(str(right), left)
    if isinstance(left, float) or isinstance(right, float):
        return _compare_floats(float(left), float(right))  # type: ignore[arg-type]
    return (left > right) - (left < right)  # type: ignore[operator]


def compare_order(left: Value, right: Value) -> int:
    """As `compare`, where one must be less than the other: texts have an order only as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return _compare_floats(parse_float(left), parse_float(right))
    return compare(left, right)


def _read_like(text: str, other: Value) -> int | float:
    if isinstance(other, float):
        return parse_float(text)
    assert isinstance(other, int)
    return parse_integer(text, INT32 if abs(other) <= INT32 else INT64)


def parse_integer(text: str, most: int) -> int:
    if _WHOLE.fullmatch(text) is None or len(text) > 40:
        raise Incomparable("no whole number")
    number = int(text)
    if not -most - 1 <= number <= most:
        raise Incomparable("a number that is too large")
    return number


def parse_float(text: str) -> float:
    text = text.strip(_BLANK)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("fFdD") if "p" in text.lower() else text)
        except (ValueError, OverflowError):
            raise Incomparable("no number") from None
    if _DECIMAL.fullmatch(text) is None:
        raise Incomparable("no number")
    return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))


def _compare_floats(left: float, right: float) -> int:
    """Not-a-number is equal to itself and above everything, zero above minus zero."""
    if left != left or right != right:
        return (left != left) - (right != right)
    if left == right == 0.0:
        return (str(left) < str(right)) - (str(left) > str(right))
    return (left > right) - (left < right)
