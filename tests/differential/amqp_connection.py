"""One AMQP connection of a driver: sends methods and contents, collects what arrives. Encodes and decodes with the wire
code of the golden probes, which shares nothing with the broker's own codec."""

from __future__ import annotations

import hashlib
import importlib.util
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

WIRE = Path(__file__).parent.parent / "golden" / "amqp" / "wire.py"

METHOD, HEADER, BODY = 1, 2, 3
CONTENTS = {"basic.deliver", "basic.return", "basic.get_ok"}
PATIENCE_S = 5.0
FRAME_MAX = 131072
LONGEST_SHOWN_BODY = 200


def _load_wire() -> ModuleType:
    found = importlib.util.spec_from_file_location("golden_amqp_wire", WIRE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


wire = _load_wire()


class Ended(Exception):
    """The broker closed the connection before it was open."""


def table_value(value: Any) -> Any:
    """Turns a JSON value of a step into one for the wire code. `{"$": "s", "v": 5}` forces the type of a field."""
    if isinstance(value, dict) and "$" in value:
        return _typed(value["$"], value["v"])
    if isinstance(value, dict):
        return {key: table_value(each) for key, each in value.items()}
    if isinstance(value, list):
        return [table_value(each) for each in value]
    return value


def _typed(kind: str, value: Any) -> Any:
    tag = kind.encode()
    if kind == "x":
        raw = value.encode()
        return wire.Typed(tag, struct.pack(">I", len(raw)) + raw)
    if kind == "D":
        return wire.Typed(tag, struct.pack(">Bi", *value))
    return wire.Typed(tag, struct.pack(wire.SZ[tag], value))


def header_fields(payload: bytes) -> tuple[int, dict[str, Any]]:
    """Decodes a content header. Fields of the headers keep their type: `["I", 5]`. Malformed properties are shown in
    hexadecimal."""
    try:
        size, properties = wire.dheader(payload)
        if "headers" in properties:
            properties["headers"] = _typed_table(_table_bytes(payload))
    except (struct.error, IndexError, KeyError):
        return struct.unpack_from(">Q", payload, 4)[0], {"malformed": payload[12:].hex()}
    return size, properties


def _table_bytes(payload: bytes) -> bytes:
    flags = struct.unpack_from(">H", payload, 12)[0]
    at = 14
    for bit in (15, 14):  # content type and encoding stand before the headers
        if flags >> bit & 1:
            at += 1 + payload[at]
    return payload[at + 4 : at + 4 + struct.unpack_from(">I", payload, at)[0]]


def _typed_table(raw: bytes) -> dict[str, Any]:
    fields = {}
    at = 0
    while at < len(raw):
        key = raw[at + 1 : at + 1 + raw[at]].decode("utf-8", "replace")
        fields[key], at = _typed_field(raw, at + 1 + raw[at])
    return fields


def _typed_field(raw: bytes, at: int) -> tuple[list[Any], int]:
    kind = raw[at : at + 1]
    value, after = wire.dv(raw, at)
    if kind == b"F":
        value = _typed_table(raw[at + 5 : after])
    elif kind == b"A":
        value, inner = [], at + 5
        while inner < after:
            field, inner = _typed_field(raw, inner)
            value.append(field)
    elif kind == b"x":
        value = value.hex()
    elif isinstance(value, tuple):
        value = list(value)
    return [kind.decode(), value], after


def shown_body(body: bytes) -> str:
    if len(body) <= LONGEST_SHOWN_BODY:
        return body.decode("utf-8", "replace")
    return f"{len(body)} bytes, {hashlib.sha256(body).hexdigest()[:16]}"


class ClientConnection:
    """Connects and logs in. `received` holds the methods that arrived and were not yet taken."""

    def __init__(self, port: int, options: Mapping[str, Any] | None = None) -> None:
        self.received: list[Any] = []
        self.ended = False
        self.closing = False  # by a step
        self.close_sent = False
        self._buffer = b""
        self._partial: dict[int, Any] = {}
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._log_in(dict(options or {}))
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def _log_in(self, options: dict[str, Any]) -> None:
        capabilities = {
            "consumer_cancel_notify": True,
            "authentication_failure_close": True,
            "connection.blocked": True,
        }
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.take("connection.start")
        self.send(
            0,
            "connection.start_ok",
            {
                "props": {"capabilities": options.get("capabilities", capabilities)},
                "mech": options.get("mech", "PLAIN"),
                "resp": options.get("resp", "\0guest\0guest"),
                "loc": options.get("loc", "en_US"),
            },
        )
        self.take("connection.tune")
        tuned = {"channel_max": 2047, "frame_max": FRAME_MAX, "heartbeat": 0, **options.get("tune", {})}
        self.send(0, "connection.tune_ok", tuned)
        self.send(0, "connection.open", {"vhost": options.get("vhost", "/")})
        self.take("connection.open_ok")

    def take(self, name: str) -> Any:
        """Waits for a method during the handshake."""
        while not self.received:
            self.receive()
            if self.ended and not self.received:
                raise Ended("end of connection")
        method = self.received.pop(0)
        if method.name != name:
            raise Ended(f"{method.name} {dict(method)}" if method.name == "connection.close" else method.name)
        return method

    def send(self, channel: int, name: str, fields: Mapping[str, Any]) -> None:
        self.send_frame(METHOD, channel, encode(name, fields))

    def send_frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.send_bytes(wire.frame(kind, channel, payload))

    def send_bytes(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            self._socket.sendall(data)
        except OSError:
            self.ended = True

    def receive(self) -> None:
        """Reads what the socket has. Blocks if it has nothing."""
        try:
            data = self._socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return
        self._buffer += data
        while len(self._buffer) >= 8:
            kind, channel, length = struct.unpack_from(">BHI", self._buffer)
            if len(self._buffer) < length + 8:
                break
            payload, self._buffer = self._buffer[7 : 7 + length], self._buffer[8 + length :]
            self._take_frame(kind, channel, payload)

    def _take_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == METHOD:
            name, fields = wire.dec(payload)
            method = wire.M(name, fields, channel)
            if name in CONTENTS:
                self._partial[channel] = [method, 0, b""]
            else:
                self.received.append(method)
            return
        if kind not in (HEADER, BODY):
            return
        content = self._partial[channel]
        if kind == HEADER:
            content[1], content[0]["properties"] = header_fields(payload)
        else:
            content[2] += payload
        if len(content[2]) >= content[1]:
            content[0]["body"] = shown_body(content[2])
            self.received.append(content[0])
            del self._partial[channel]

    def end(self) -> None:
        self.ended = True
        self._socket.close()


def encode(name: str, fields: Mapping[str, Any]) -> bytes:
    """Encodes a method. Tables may have typed values."""
    payload: bytes = wire.enc(name, **{key: table_value(value) for key, value in fields.items()})
    return payload


def content_header(size: int, properties: Mapping[str, Any]) -> bytes:
    payload: bytes = wire.header(size, {key: table_value(value) for key, value in properties.items()})
    return payload


# -- frames in any order


def raw_frame(shown: Mapping[str, Any]) -> bytes:
    """Encodes `{"type": 1, "ch": 1, …}` with `hex`, or `method` and its `fields`, or `size` and `properties`, or `body`
    and `times`. `end` replaces the last octet, and `length` the length. `raw`: bytes without a frame."""
    if "raw" in shown:
        return bytes.fromhex(shown["raw"])
    if "hex" in shown:
        payload = bytes.fromhex(shown["hex"])
    elif "method" in shown:
        payload = encode(shown["method"], shown.get("fields", {}))
    elif "size" in shown:
        payload = content_header(shown["size"], shown.get("properties", {}))
    else:
        payload = shown["body"].encode() * shown.get("times", 1)
    default = METHOD if "method" in shown else HEADER if "size" in shown else BODY
    start = struct.pack(">BHI", shown.get("type", default), shown.get("ch", 1), shown.get("length", len(payload)))
    return start + payload + bytes([shown.get("end", 0xCE)])


HANDSHAKE_QUIET_S = 0.1
HANDSHAKE_END_S = 4.0
"""RabbitMQ closes the socket of a client that it does not trust after three seconds."""


def shake_hands(port: int, sent: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Sends frames on a new connection, each after the answers to the one before. Returns what was received, and how it
    ended: the broker closes the connection in an orderly way, or without a word, or leaves it open."""
    received: list[Any] = []
    is_closed = False
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as peer:
        for quiet_s, each in [*((HANDSHAKE_QUIET_S, each) for each in sent), (HANDSHAKE_END_S, {"raw": ""})]:
            try:
                peer.sendall(raw_frame(each))
                shown, is_closed = _received(peer, quiet_s)
            except OSError:
                shown, is_closed = [], True
            received += shown
            if any(name in ("connection.close", "connection.close_ok") for _, name, _ in shown):
                return [*received, "closing"]
            if is_closed:
                break
    return [*received, "closed" if is_closed else "open"]


def _text(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _received(peer: socket.socket, quiet_s: float) -> tuple[list[Any], bool]:
    """Reads until nothing came for a time, or the broker closed the connection. Frames are shown by their method; other
    bytes in hexadecimal."""
    peer.settimeout(quiet_s)
    data = b""
    is_closed = False
    try:
        while piece := peer.recv(1 << 16):
            data += piece
        is_closed = True
    except TimeoutError:
        pass
    except OSError:
        is_closed = True
    shown: list[Any] = []
    while len(data) >= 8 and not data.startswith(b"AMQP"):
        kind, channel, length = struct.unpack_from(">BHI", data)
        payload, data = data[7 : 7 + length], data[8 + length :]
        if kind == METHOD:
            name, fields = wire.dec(payload)
            own = {"t", "props"} if name == "connection.start" else set()
            visible = {key: value for key, value in fields.items() if key not in own}
            shown.append([channel, name, {key: _text(value) for key, value in visible.items()}])
        else:
            shown.append([channel, kind, payload.hex()])
    if data:
        shown.append([-1, "bytes", data.hex()])
    return shown, is_closed
