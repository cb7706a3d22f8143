"""Comparison of values in SQL filters. Properties are strings; compared with a constant, they are parsed as its type.
If that fails, the whole expression does not match. The rules are those of the corresponding Java types."""

from __future__ import annotations

import re

Value = None | bool | int | float | str

INT32, INT64 = 2**31 - 1, 2**63 - 1

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+[fFdD]?")
_BLANK = "".join(map(chr, range(33)))


class Incomparable(ValueError):
    """Two values that cannot be compared: the message does not match."""


def compare(left: Value, right: Value) -> int:
    """Returns a negative number, zero or a positive number. Neither value may be None."""
    kinds = type(left), type(right)
    match kinds:
        case (a, b) if a is b:
            pass
        case (a, b) if a is bool and b is str:
            raise Incomparable("a Boolean cannot be compared with a string")
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
    """Same as `compare`, for <, <=, > and >=: strings are compared as numbers only."""
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
        raise Incomparable("not an integer")
    number = int(text)
    if not -most - 1 <= number <= most:
        raise Incomparable("the number is too large")
    return number


def parse_float(text: str) -> float:
    text = text.strip(_BLANK)
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.rstrip("fFdD") if "p" in text.lower() else text)
        except (ValueError, OverflowError):
            raise Incomparable("not a number") from None
    if _DECIMAL.fullmatch(text) is None:
        raise Incomparable("not a number")
    return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))


def _compare_floats(left: float, right: float) -> int:
    """NaN equals itself and is above everything; 0.0 is above -0.0."""
    if left != left or right != right:
        return (left != left) - (right != right)
    if left == right == 0.0:
        return (str(left) < str(right)) - (str(left) > str(right))
    return (left > right) - (left < right)
