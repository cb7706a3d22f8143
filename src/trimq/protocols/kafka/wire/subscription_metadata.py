"""Subscription metadata of consumers in classic groups: the topics that a consumer subscribes to. The broker passes it
to the group leader unread, and decodes it only to find out whether a topic is in use, and for the lag of a group.

| version i16 | topics: count i32, each: length i16, name | user data and fields of later versions |
"""

from __future__ import annotations

import struct

CONSUMER = "consumer"

_COUNT_AT, _TOPICS_AT = 2, 6


def subscribed_topics(protocol_type: str, metadata: bytes) -> set[str]:
    """Returns the topics of a member's subscription; none if its group is not one of consumers."""
    return (read_topics(metadata) or set()) if protocol_type == CONSUMER else set()


def read_topics(metadata: bytes) -> set[str] | None:
    """Returns the topics of a subscription, or None if the bytes are not subscription metadata."""
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
