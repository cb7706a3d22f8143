"""A gRPC client's connection in the simulation: sends calls on HTTP/2 streams, returns whole responses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from client_connection import ClientConnection, Lost
from protocols.grpc.http2_peer import HEAD, call, settings, word
from simulated_loop import SimulatedLoop
from simulated_wires import Peer

from trimq.protocols.grpc.frames import ACK, END_STREAM, PREFACE, FrameType, frame

SERVICE = "apache.rocketmq.v2.MessagingService"
_WINDOW = 4  # identifier of an HTTP/2 setting
_WIDE = 1 << 30


class GrpcConnection(ClientConnection):
    def __init__(self, loop: SimulatedLoop, peer: Peer, is_outdated: Callable[[], bool], client_id: str) -> None:
        super().__init__(loop, peer, keeps_order=False, is_outdated=is_outdated)
        self._client_id = client_id
        self._next_id = -1
        self._answers: defaultdict[int, bytes] = defaultdict(bytes)
        self.send_only(PREFACE + settings((_WINDOW, _WIDE)) + word(FrameType.WINDOW_UPDATE, 0, _WIDE))

    def next_id(self) -> int:
        """Streams opened by clients have odd numbers."""
        self._next_id += 2
        return self._next_id

    def encode(self, id: int, method: str, raw: bytes) -> bytes:
        return call(id, raw, method, service=SERVICE, x_mq_client_id=self._client_id, x_mq_language="PYTHON")

    def _hand_out(self) -> None:
        received = self._received
        while not self.is_over and len(received) >= HEAD.size:
            mark, flags, number = HEAD.unpack_from(received)
            finish = HEAD.size + (mark >> 8)
            if len(received) < finish:
                return
            payload = bytes(received[HEAD.size : finish])
            del received[:finish]
            self._handle_frame(mark & 0xFF, flags, number, payload)

    def _handle_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind in (FrameType.SETTINGS, FrameType.PING) and not flags & ACK:
            self.send_only(frame(kind, ACK, 0, payload if kind == FrameType.PING else b""))
        elif kind == FrameType.DATA:
            self._answers[number] += payload
        if kind == FrameType.RST_STREAM or (kind in (FrameType.DATA, FrameType.HEADERS) and flags & END_STREAM):
            self._end_stream(number, is_whole=kind != FrameType.RST_STREAM)

    def _end_stream(self, number: int, is_whole: bool) -> None:
        answer, data = self._waiting.pop(number, None), self._answers.pop(number, b"")
        if answer is None or answer.done():
            return
        if is_whole and data:
            answer.set_result(data)
        else:  # ended with a status of gRPC's own: the broker stops, or has too many calls
            answer.set_exception(Lost())
            answer.exception()
