"""One connection of a client that calls one gRPC method: real frames, without a socket."""

from __future__ import annotations

from typing import Any

from protocols.grpc.http2_peer import Http2Peer, call
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk

from trimq.protocols.grpc.connection import Http2Limits
from trimq.protocols.rocketmq.grpc.front_end import METHODS, GrpcFrontEnd

LIMITS = Http2Limits(streams=500, header_bytes=8192, message_bytes=1 << 20, idle_frames=1000, unsent_bytes=1 << 20)


class Line:
    """`is_alone`: every call is sent by itself."""

    def __init__(self, desk: GrpcDesk, is_alone: bool = False, method: str = "SendMessage") -> None:
        self._desk = desk
        self._method = method
        self.peer = Http2Peer(LIMITS, desk.desk.liveness, front_end=desk.front_end).greet()
        if is_alone:
            self.peer.conversation._call_batches = {}
        self._last = -1

    def frames(self, raw: bytes, **metadata: str) -> bytes:
        self._last += 2
        headers = {"x_mq_client_id": "c1", **metadata}
        return call(self._last, raw, self._method, service=GrpcFrontEnd.service, **headers)

    def say(self, *raws: bytes) -> list[int]:
        """Sends all calls at once. Returns the stream number of each."""
        first = self._last + 2
        self.peer.say(b"".join(map(self.frames, raws)), 30_000)
        return [*range(first, self._last + 2, 2)]

    def settle(self) -> None:
        self._desk.desk.runner.settle()
        self.peer.moved(self._desk.desk.runner.passes.durable)

    def ask(self, *requests: Any) -> list[Any]:
        """Sends all calls at once. Returns their responses."""
        numbers = self.say(*(each.SerializeToString() for each in requests))
        self.settle()
        return [self.answer(number) for number in numbers]

    def answer(self, number: int) -> Any:
        (raw,) = self.peer.answers[number].messages
        return METHODS[self._method].response.FromString(raw)

    @property
    def runs(self) -> list[int]:
        return [len(streams) for each in self.peer.events if (streams := getattr(each, "streams", None))]
