"""Recall handles of delayed messages: base64 of version, topic, broker, due time and message id."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple


class RecallHandle(NamedTuple):
    topic: str
    broker: str
    due_ms: int
    id: str


def read_recall_handle(text: str) -> RecallHandle:
    """Raises ValueError if the text is no handle."""
    try:
        version, topic, broker, due, id = base64.urlsafe_b64decode(text).decode().split(" ", 4)
        if version != "v1" or not topic or not broker or not id:
            raise ValueError(text)
        return RecallHandle(topic, broker, int(due), id)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text[:60]!r} is no recall handle: take it from the result of a delayed send") from None
