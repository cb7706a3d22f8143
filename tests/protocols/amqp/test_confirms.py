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


def confirms_of(reply: Reply | None) -> list[BasicAck | BasicNack]:
    assert reply is not None
    assert reply.lane is None
    return [read_method(payload) for _, _, payload in frames_of(b"".join(reply.take()))]  # type: ignore[misc]


def test_a_message_that_is_ready_is_confirmed_at_once() -> None:
    confirms = Confirms(1)
    assert confirms_of(confirms.add(Published())) == [BasicAck(1, False)]
    assert confirms_of(confirms.add(Published())) == [BasicAck(2, False)]


def test_a_pass_is_confirmed_by_one_frame() -> None:
    confirms = Confirms(1)
    reply = confirms.add(Published(7))
    assert reply is not None
    assert [confirms.add(Published(7)) for _ in range(9)] == [None] * 9
    assert not reply.is_ready(7, 6)
    assert reply.is_ready(7, 7)
    assert confirms_of(reply) == [BasicAck(10, True)]
    assert confirms_of(confirms.add(Published(8))) == [BasicAck(11, False)]


def test_a_message_without_sync_is_confirmed_when_written_but_not_for_older_ones() -> None:
    confirms = Confirms(1)
    synced = confirms.add(Published(7))
    written = confirms.add(Published(7, needs_sync=False))
    assert confirms.add(Published(7, needs_sync=False)) is None
    assert written is not None
    assert written.is_ready(7, 6)
    assert confirms_of(written) == [BasicAck(2, False), BasicAck(3, False)]
    assert confirms_of(synced) == [BasicAck(1, False)]


def test_alternating_kinds_make_two_batches_and_not_one_per_message() -> None:
    confirms = Confirms(1)
    synced = confirms.add(Published(7))
    written = confirms.add(Published(7, needs_sync=False))
    assert [confirms.add(Published(7, needs_sync=number % 2 == 0)) for number in range(4)] == [None] * 4
    assert confirms_of(written) == [BasicAck(2, False), BasicAck(4, False), BasicAck(6, False)]
    assert confirms_of(synced) == [BasicAck(5, True)]


def test_a_refused_message_is_nacked_at_once() -> None:
    confirms = Confirms(1)
    waiting = confirms.add(Published(3))
    assert confirms_of(confirms.add(Published(is_refused=True))) == [BasicNack(2)]
    assert confirms.add(Published(3)) is None
    assert confirms_of(waiting) == [BasicAck(3, True)]


def test_a_pass_that_could_not_be_written_is_nacked() -> None:
    confirms = Confirms(1)
    lost = Published(3, failed=True)
    reply = confirms.add(lost)
    assert confirms.add(lost) is None
    assert confirms.add(Published(3)) is None
    assert confirms_of(reply) == [BasicNack(1), BasicNack(2), BasicAck(3, False)]


rarely = st.sampled_from([False] * 5 + [True])
outcomes = st.builds(Published, st.integers(0, 3), st.booleans(), rarely, rarely)


class Publisher:
    """A client's list of unconfirmed messages."""

    def __init__(self) -> None:
        self.unsettled: dict[int, Published] = {}

    def receive(self, reply: Reply) -> None:
        for confirm in confirms_of(reply):
            last = confirm.delivery_tag
            assert last in self.unsettled
            tags = [tag for tag in self.unsettled if tag <= last] if confirm.is_multiple else [last]
            for tag in tags:
                outcome = self.unsettled.pop(tag)
                assert (outcome.is_refused or outcome.failed) is isinstance(confirm, BasicNack)


@examples(200)
@given(st.lists(outcomes, max_size=30))
def test_every_tag_is_confirmed_once_and_correctly(published: list[Published]) -> None:
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
            publisher.receive(reply)
        elif reply is not None:
            waiting.append((outcome.needs_sync, outcome.number, reply))
    for _, _, reply in sorted(waiting, key=lambda found: found[:2]):  # written before synced, passes in order
        publisher.receive(reply)
    assert publisher.unsettled == {}
