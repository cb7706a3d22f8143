"""Count of unacknowledged messages of a channel."""

from __future__ import annotations

from typing import Any, cast

import pytest

from trimq.core.queues.backlog import NEVER_DELIVERED
from trimq.core.queues.unacked import Delivery
from trimq.formats.amqp_content.content import NEVER, Content, StoredContent
from trimq.protocols.amqp.channel import Channel, Transaction

NOBODY = cast(Any, None)


def delivered(size: int) -> Delivery:
    stored = StoredContent(0, 0, NEVER, Content(b"", b"key", b"", bytes(size), 0))
    return Delivery(NOBODY, None, stored, None, b"", NEVER_DELIVERED, 0)


def holding(*sizes: int) -> Channel:
    channel = Channel(1)
    channel.add_unacked(channel.next_tags(len(sizes)), [delivered(size) for size in sizes], max(sizes))
    return channel


def test_acknowledged_messages_no_longer_count() -> None:
    channel = holding(100, 200, 300)
    before = channel.unacked_bytes
    assert len(channel.take_unacked(2, is_multiple=True)) == 2
    assert 0 < channel.unacked_bytes < before
    channel.take_unacked(3, is_multiple=False)
    assert channel.unacked_bytes == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_messages_acknowledged_in_a_transaction_count_until_its_end(is_committed: bool) -> None:
    channel = holding(100, 200, 300)
    before = channel.unacked_bytes
    channel.transaction = transaction = Transaction()
    channel.take_unacked(2, is_multiple=True)
    assert channel.unacked_bytes == before
    channel.transaction = None
    if is_committed:
        channel.commit_acknowledged(transaction.acknowledged)
        assert 0 < channel.unacked_bytes < before
    else:
        channel.restore_unacked(transaction.acknowledged)
        assert (channel.unacked_bytes, list(channel.unacked)) == (before, [1, 2, 3])
    channel.take_all_unacked()
    assert channel.unacked_bytes == 0
