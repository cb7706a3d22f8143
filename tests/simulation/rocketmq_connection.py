"""A RocketMQ client's connection in the simulation: sends frames and returns responses, matched by their number; passes
requests of the broker on."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from client_connection import ClientConnection
from simulated_loop import SimulatedLoop
from simulated_trace import SimulationFailure
from simulated_wires import Peer

_LENGTHS = struct.Struct(">iI")
RESPONSE, ONE_WAY = 1, 2

RequestHandler = Callable[[Mapping[str, Any], bytes], None]


def encode(code: int, opaque: int, fields: Mapping[str, object], body: bytes = b"", flag: int = 0) -> bytes:
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
    header = {"code": code, "extFields": texts, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 493}
    raw = json.dumps(header, separators=(",", ":")).encode()
    return _LENGTHS.pack(4 + len(raw) + len(body), len(raw)) + raw + body


def decode(answer: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns header and body of a frame without its length."""
    (size,) = struct.unpack_from(">I", answer)
    header: dict[str, Any] = json.loads(answer[4 : 4 + size])
    return header, answer[4 + size :]


class RocketMQConnection(ClientConnection):
    def __init__(
        self, loop: SimulatedLoop, peer: Peer, is_outdated: Callable[[], bool], handle_request: RequestHandler
    ) -> None:
        super().__init__(loop, peer, keeps_order=False, is_outdated=is_outdated)
        self._handle_request = handle_request

    def _hand_out(self) -> None:
        received = self._received
        while (
            not self.is_over
            and len(received) >= 4
            and len(received) >= (end := 4 + int.from_bytes(received[:4], "big"))
        ):
            frame = bytes(received[4:end])
            del received[:end]
            header, body = decode(frame)
            if not header["flag"] & RESPONSE:
                self._handle_request(header, body)
                continue
            answer = self._waiting.pop(header["opaque"], None)
            if answer is None:
                raise SimulationFailure(f"a response without a request: {header}")
            if not answer.done():
                answer.set_result(frame)
