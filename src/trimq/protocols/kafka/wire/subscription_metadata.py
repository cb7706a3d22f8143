"""What consumers tell their group's leader about themselves: which topics they want. The broker hands it on unread, and
looks into it only to tell whether a topic is in use.

| version i16 | topics: count i32, each: length i16, name | user data and what later versions added |
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"

_COUNT_AT, _TOPICS_AT = 2, 6


def read_topics(metadata: bytes) -> set[str] | None:
    """The topics of a subscription. None: these bytes are none."""
    try:
        (count,) = struct.unpack_from(">i", metadata, _COUNT_AT)
        position = _TOPICS_AT
        topics: set[str] = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            position += 2
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            position += length
            topics.add(name.decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
