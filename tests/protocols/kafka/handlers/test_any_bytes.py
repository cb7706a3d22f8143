"""Random bytes from a peer harm its own connection only: the conversation on the real session loop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.kafka.desk import Desk
from protocols.kafka.frames import framed, request_frame
from protocols.kafka.strategies import examples, restricted, structs, versions_of
from server.scripted import Peer, run

from trimq.clock import Clock
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.handlers import HANDLERS
from trimq.protocols.kafka.messages.handshakes import ApiVersionsRequest
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.wire.apis import request_class

HELLO = request_frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, 77)


class Complaints(logging.Handler):
    """Logged errors, with their tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


def open_conversation(sent: list[bytes]) -> None:
    """Gives these bytes to one connection, then asserts that another one is answered and that no error was logged."""

    async def main() -> None:
        desk = Desk()
        desk.create("t", 2)
        clock = Clock(desk.message_time, desk.liveness)
        front_end = desk.new_front_end(clock)
        bad, good = Peer(front_end=front_end), Peer(front_end=front_end)
        for data in sent:
            give(bad, data)
            desk.runner.settle()
            for peer in (bad, good):
                peer.progress.advance(desk.runner.passes.written, desk.runner.passes.durable)
            await asyncio.sleep(0)
        give(good, HELLO)
        await good.settle()
        assert good.pipe.sent[4:8] == (77).to_bytes(4, "big")
        for peer in (bad, good):
            peer.pipe.abort()
            await peer.settle()
            assert peer.ended == [peer.session]

    complaints = Complaints()
    logging.getLogger("trimq").addHandler(complaints)
    try:
        run(main)
    finally:
        logging.getLogger("trimq").removeHandler(complaints)
    assert complaints.texts == []


def give(peer: Peer, data: bytes) -> None:
    """Feeds the bytes for as long as the session reads."""
    while data and peer.pipe.reads and not peer.pipe.is_closed:
        buffer = peer.session.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        peer.session.buffer_updated(count)
        data = data[count:]


@examples(60)
@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes(sent: list[bytes]) -> None:
    open_conversation(sent)


@examples(60)
@given(st.sampled_from([*HANDLERS, 99]), st.integers(-1, 20), st.binary(max_size=120))
def test_any_body_behind_a_proper_header(api_key: int, version: int, body: bytes) -> None:
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\7\0\1c"
    open_conversation([framed(header + body), HELLO])


@examples(80)
@given(st.data())
def test_a_request_with_bytes_changed_cut_or_added(draw: st.DataObject) -> None:
    kind: Any = request_class(draw.draw(st.sampled_from([key for key in HANDLERS if key])))
    version = draw.draw(st.sampled_from(versions_of(kind)))
    frame = bytearray(request_frame(restricted(draw.draw(structs(kind)), version), version))
    for _ in range(draw.draw(st.integers(0, 3))):
        place = draw.draw(st.integers(4, len(frame) - 1))
        way = draw.draw(st.sampled_from(["change", "cut", "add"]))
        if way == "change":
            frame[place] = draw.draw(st.integers(0, 255))
        elif way == "cut" and len(frame) > 20:
            del frame[place : place + 4]
        else:
            frame[place:place] = draw.draw(st.binary(max_size=4))
    open_conversation([framed(bytes(frame[4:])), HELLO])


@examples(60)
@given(st.data())
def test_a_batch_with_bytes_changed(draw: st.DataObject) -> None:
    records = [Record(b"x" * 20, b"key", (("h", b"v"),), 5) for _ in range(3)]
    batch = bytearray(from_records(records))
    for _ in range(draw.draw(st.integers(1, 4))):
        batch[draw.draw(st.integers(0, len(batch) - 1))] = draw.draw(st.integers(0, 255))
    acks = draw.draw(st.sampled_from([-1, 0, 1]))
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=bytes(batch))])
    open_conversation([request_frame(ProduceRequest(acks=acks, timeout_ms=1, topic_data=[topic]), 9), HELLO])


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"AMQP\0\0\x09\x01",
        bytes.fromhex("16030100a5010000a10303"),
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\1x",
    ],
)
def test_another_protocol(sent: bytes) -> None:
    open_conversation([HELLO + sent])
