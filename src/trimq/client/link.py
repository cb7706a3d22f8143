"""Requests and responses of one connection without IO: matches responses to requests, keeps their deadlines, and passes
requests of the broker on. Bytes go in by `get_buffer` and `buffer_updated`, and out by `take_output`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trimq.client.errors import Closed, ConnectionLost, TimedOut
from trimq.client.timing import Deadlines
from trimq.clock import Timeline
from trimq.model import Buffer
from trimq.wire.remoting import (
    NO_FIELDS,
    ONE_WAY,
    RESPONSE,
    Command,
    RemotingConnection,
    encode_command,
    encode_request,
)

LANGUAGE = "PYTHON"
DEFAULT_FRAME_LIMIT = 64 * 1024 * 1024

_MAX_OPAQUE = 2**31 - 1


class SentFields(msgspec.Struct, gc=False):
    """Fields of the response to a send. Numbers are texts on the wire."""

    queueOffset: int
    msgId: str
    queueId: int
    transactionId: str = ""
    recallHandle: str = ""


class SentAnswer(msgspec.Struct, gc=False):
    """Whole header of a successful response to a send, for responses that are read as a batch."""

    code: int
    extFields: SentFields
    opaque: int
    flag: int

    def as_command(self) -> Command:
        """Returns the response without the fast path, for the few requests that are not sends."""
        fields = {name: str(getattr(self.extFields, name)) for name in SentFields.__struct_fields__}
        return Command(self.code, self.opaque, self.flag, 0, "", None, b"", _fields=fields)


Outcome = Command | SentAnswer | Exception
"""Response to a request, or the reason why there is none."""

Callback = Callable[[Outcome], object]
OnRequest = Callable[["Link", Command], object]

_SENT_BEGINS = (b'{"code":0,"extFields":{"queueOffset":',)
_decode_sent = msgspec.json.Decoder(SentAnswer, strict=False).decode


class Link:
    """`wake` is called when there is new output and none was waiting before; `on_request` for a request of the
    broker."""

    def __init__(
        self,
        address: str,
        timeline: Timeline,
        on_request: OnRequest,
        wake: Callable[[], object],
        frame_limit: int = DEFAULT_FRAME_LIMIT,
    ) -> None:
        self.address = address
        self.pending: dict[int, Callback] = {}
        self.is_closed = False
        self._connection = RemotingConnection(frame_limit)
        self._on_request = on_request
        self._wake = wake
        self._deadlines = Deadlines(timeline, self._expire)
        self._opaque = 0
        self._output: list[Buffer] = []
        self.get_buffer = self._connection.get_buffer

    # -- requests

    def next_opaque(self) -> int:
        self._opaque = opaque = self._opaque % _MAX_OPAQUE + 1
        return opaque

    def request(
        self, code: int, fields: Mapping[str, str], body: Buffer, deadline_ms: int, done: Callback, flag: int = 0
    ) -> None:
        """Sends a request. `done` is called once, never inside this call."""
        opaque = self.next_opaque()
        self.send(opaque, encode_request(code, opaque, flag, fields, LANGUAGE, len(body)), body, deadline_ms, done)

    def send(self, opaque: int, head: bytes, body: Buffer, deadline_ms: int, done: Callback) -> None:
        """Sends an encoded request, the frame up to its body and the body."""
        self.pending[opaque] = done
        self._deadlines.add(deadline_ms, opaque)
        self.write(head, body)

    def notify(self, code: int, fields: Mapping[str, str], body: Buffer = b"") -> None:
        """Sends a request without a response."""
        self.write(encode_request(code, self.next_opaque(), ONE_WAY, fields, LANGUAGE, len(body)), body)

    def respond(
        self, request: Command, code: int, remark: str | None = None, body: Buffer = b"",
        fields: Mapping[str, str] = NO_FIELDS,
    ) -> None:  # fmt: skip
        """Responds to a request of the broker, unless it wants no response."""
        if not request.is_one_way:
            self.write(encode_command(code, request.opaque, RESPONSE, fields, remark, len(body)), body)

    def write(self, head: bytes, body: Buffer = b"") -> None:
        output = self._output
        if not output:
            self._wake()
        output.append(head)
        if body:
            output.append(body)

    def take_output(self) -> bytes:
        """Returns all bytes to be sent now."""
        output, self._output = self._output, []
        return b"".join(output)

    # -- responses

    def buffer_updated(self, count: int) -> None:
        """Processes received bytes. Raises ProtocolError if they are no frames; the connection must close then."""
        connection = self._connection
        connection.buffer_updated(count)
        while True:
            connection.read_matching(_SENT_BEGINS, _decode_sent, self._take_sent)
            command = connection.next_event()
            if command is None:
                return
            if not command.is_response:
                self._on_request(self, command)
            elif (done := self.pending.pop(command.opaque, None)) is not None:
                done(command)

    def _take_sent(self, answer: SentAnswer, body: memoryview) -> bool:
        if answer.flag != RESPONSE:
            return False
        done = self.pending.pop(answer.opaque, None)
        if done is not None:
            done(answer)
        return True

    def _expire(self, opaque: int) -> None:
        done = self.pending.pop(opaque, None)
        if done is not None:
            done(TimedOut(f"{self.address} did not respond in time"))

    def close(self, reason: str = "") -> None:
        """Ends all pending requests, with the reason for which the connection was lost, if any."""
        if self.is_closed:
            return
        self.is_closed = True
        self._deadlines.close()
        self._output.clear()
        self._connection.drop()
        pending, self.pending = self.pending, {}
        for done in pending.values():
            done(ConnectionLost(f"{self.address}: {reason}") if reason else Closed(f"{self.address}: closed"))
