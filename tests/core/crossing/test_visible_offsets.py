"""Readers of other protocols get exactly the committed messages, with the offsets that they have at home."""

from __future__ import annotations

from core.transacting_core import TOPIC, TransactingCore
from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent
from trimq.model import SYSTEM, Layout, Record, TopicName

# How each of two producers goes on: a plain batch, one more transactional record, or the end of its transaction.
STEPS = st.lists(
    st.tuples(st.sampled_from(["plain", "write", "commit", "abort"]), st.integers(0, 1), st.integers(1, 3)), max_size=25
)


class Story:
    """Runs the steps, and knows what becomes visible."""

    def __init__(self) -> None:
        self.core = TransactingCore(streams=1)
        self.visible: dict[int, bytes] = {}
        self._open: dict[int, list[tuple[int, bytes]]] = {}
        self._producers = {number: self.core.init_producer(f"t{number}") for number in range(2)}
        self._sequences = [0, 0]
        self._bodies = 0

    def body(self) -> bytes:
        self._bodies += 1
        return b"%d" % self._bodies

    def run(self, step: str, who: int, count: int) -> None:
        stream, name = self.core.stream(), f"t{who}"
        if step == "plain":
            bodies = [self.body() for _ in range(count)]
            batch = from_records([Record(body, timestamp_ms=1) for body in bodies])
            topic = self.core.core.topics.get(TopicName("", TOPIC))
            placed = self.core.core.broker.partitions.append(SYSTEM, topic, stream, batch, check_sent(batch))
            self.visible |= {placed.base_offset + index: body for index, body in enumerate(bodies)}
        elif step == "write":
            if who not in self._open:
                self.core.add(self._producers[who], 0, name=name)
            body, offset = self.body(), stream.end
            self.core.write(self._producers[who], body, sequence=self._sequences[who], name=name)
            self._sequences[who] += 1
            self._open.setdefault(who, []).append((offset, body))
        elif who in self._open:
            self.core.end(self._producers[who], is_commit=step == "commit", name=name)
            written = self._open.pop(who)
            if step == "commit":
                self.visible |= dict(written)
        self.core.settle()

    def expected(self, start: int) -> list[tuple[int, bytes]]:
        first_open = min((written[0][0] for written in self._open.values()), default=self.core.stream().end)
        return sorted((offset, body) for offset, body in self.visible.items() if start <= offset < first_open)


@given(steps=STEPS, at_once=st.integers(1, 4), begin=st.integers(0, 8), room=st.sampled_from([1, 60, 1 << 20]))
def test_offsets_that_are_delivered_are_those_that_are_visible(
    steps: list[tuple[str, int, int]], at_once: int, begin: int, room: int
) -> None:
    story = Story()
    for step in steps:
        story.run(*step)
    topic = story.core.core.foreign_topics.find(SYSTEM, TOPIC, Layout.QUEUE_LOG)
    assert topic is not None
    stream = topic.stream(0)
    offset = begin = min(begin, stream.readable_end)
    found: list[tuple[int, bytes | None]] = []
    while offset < stream.readable_end:
        run = stream.read(offset, at_once, room, may_wait=True)
        assert run.next_offset > offset, "a reader goes on"
        assert all(offset <= each < run.next_offset for each, _ in run.messages)
        found += [(each, message.body) for each, message in run.messages]
        offset = run.next_offset
    assert found == story.expected(begin)
