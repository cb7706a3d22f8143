"""Comparison of field table values, as RabbitMQ compares the arguments of queues, exchanges and bindings. Pure."""

from __future__ import annotations


def is_same_value(one: object, other: object) -> bool:
    """Returns whether two values are the same. Neither the width of a number nor the type of a string counts, but a
    boolean is no number, and an integer is not equal to a float."""
    if isinstance(one, str | bytes) and isinstance(other, str | bytes):
        return _octets(one) == _octets(other)
    return _kind(one) is _kind(other) and one == other


def _octets(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)


def _kind(value: object) -> type:
    for kind in (bool, int, float, str, bytes, list, dict):
        if isinstance(value, kind):
            return kind
    return type(value)
