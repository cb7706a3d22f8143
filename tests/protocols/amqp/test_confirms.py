"""Publisher confirms: one frame for all messages of a pass, never before they are durable, never for a pending one."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from protocols.amqp.strategies import examples
from protocols.amqp.wire.test_contents import frames_of

from trimq.errors import Refusal, WriteFailed
from trimq.protocols.amqp.confirms import Confirms
from trimq.protocols.amqp.methods import BasicAck, BasicNack
from trimq.protocols.amqp.wire.method_codec import read_method
from trimq.protocols.contract import Reply


@dataclass
class Published:
    number: int = 0
    needs_sync: bool = True
    is_refused: bool = False
    failed: bool = False

    def refusal(self) -> Refusal | None:
        return WriteFailed("planted") if self.failed else None


def told(reply: Reply | None) -> list[BasicAck | BasicNack]:
    assert reply is not None
    assert reply.lane is None
    return [read_method(payload) for _, _, payload in frames_of(b"".join(reply.take()))]  # type: ignore[misc]


def test_what_waits_for_nothing_is_confirmed_at_once() -> None:
    confirms = Confirms(1)
    assert told(confirms.add(Published())) == [BasicAck(1, False)]
    assert told(confirms.add(Published())) == [BasicAck(2, False)]


def test_a_pass_is_confirmed_by_one_frame() -> None:
    confirms = Confirms(1)
    reply = confirms.add(Published(7))
    assert reply is not None
    assert [confirms.add(Published(7)) for _ in range(9)] == [None] * 9
    assert not reply.is_ready(7, 6)
    assert reply.is_ready(7, 7)
    assert told(reply) == [BasicAck(10, True)]
    assert told(confirms.add(Published(8))) == [BasicAck(11, False)]


def test_what_needs_no_sync_is_confirmed_when_written_but_not_for_older_ones() -> None:
    confirms = Confirms(1)
    synced = confirms.add(Published(7))
    written = confirms.add(Published(7, needs_sync=False))
    assert confirms.add(Published(7, needs_sync=False)) is None
    assert written is not None
    assert written.is_ready(7, 6)
    assert told(written) == [BasicAck(2, False), BasicAck(3, False)]
    assert told(synced) == [BasicAck(1, False)]


def test_what_comes_in_turns_is_two_batches_and_not_one_for_each_message() -> None:
    confirms = Confirms(1)
    synced = confirms.add(Published(7))
    written = confirms.add(Published(7, needs_sync=False))
    assert [confirms.add(Published(7, needs_sync=number % 2 == 0)) for number in range(4)] == [None] * 4
    assert told(written) == [BasicAck(2, False), BasicAck(4, False), BasicAck(6, False)]
    assert told(synced) == [BasicAck(5, True)]


def test_a_refused_message_is_nacked_at_once() -> None:
    confirms = Confirms(1)
    waiting = confirms.add(Published(3))
    assert told(confirms.add(Published(is_refused=True))) == [BasicNack(2)]
    assert confirms.add(Published(3)) is None
    assert told(waiting) == [BasicAck(3, True)]


def test_a_pass_that_could_not_be_written_is_nacked() -> None:
    confirms = Confirms(1)
    lost = Published(3, failed=True)
    reply = confirms.add(lost)
    assert confirms.add(lost) is None
    assert confirms.add(Published(3)) is None
    assert told(reply) == [BasicNack(1), BasicNack(2), BasicAck(3, False)]


rarely = st.sampled_from([False] * 5 + [True])
outcomes = st.builds(Published, st.integers(0, 3), st.booleans(), rarely, rarely)


class Publisher:
    """A client's list of unconfirmed messages."""

    def __init__(self) -> None:
        self.unsettled: dict[int, Published] = {}

    def hear(self, reply: Reply) -> None:
        for told_of in told(reply):
            last = told_of.delivery_tag
            assert last in self.unsettled
            tags = [tag for tag in self.unsettled if tag <= last] if told_of.is_multiple else [last]
            for tag in tags:
                outcome = self.unsettled.pop(tag)
                assert (outcome.is_refused or outcome.failed) is isinstance(told_of, BasicNack)


@examples(200)
@given(st.lists(outcomes, max_size=30))
def test_every_tag_is_told_once_and_rightly(published: list[Published]) -> None:
    confirms, publisher = Confirms(1), Publisher()
    waiting: list[tuple[bool, int, Reply]] = []
    number = 1
    for tag, outcome in enumerate(published, 1):
        number = max(number, outcome.number)  # pass numbers never decrease
        if outcome.number:
            outcome.number = number
        else:
            outcome.failed = False
        publisher.unsettled[tag] = outcome
        reply = confirms.add(outcome)
        if reply is not None and reply.is_ready(0, 0):
            publisher.hear(reply)
        elif reply is not None:
            waiting.append((outcome.needs_sync, outcome.number, reply))
    for _, _, reply in sorted(waiting, key=lambda found: found[:2]):  # written before synced, passes in order
        publisher.hear(reply)
    assert publisher.unsettled == {}
