"""Publishers and consumers that keep many connections busy from one thread, with as little work per message as
possible, so that the figures show the broker and not the load generator. Reads the clock only to end the load."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from struct import Struct

from bench.amqp_wire import (
    ACK_BYTES,
    Client,
    WireFailed,
    check_confirm_frame,
    delivery_bytes,
    encode_acks,
    encode_consume,
    encode_publish,
)

_BLOCK_BYTES = 128 * 1024
_RECEIVED_BYTES = 256 * 1024
PATIENCE_S = 120

_CONFIRM = Struct(">BHIHHQBB")
_HEAD_BYTES = 11  # type, channel, length, class and method


class LoadConnection:
    """A connection under load: sends pending bytes as soon as the socket accepts them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.is_blocked = False

    def outgoing(self) -> memoryview:
        """Returns the bytes that may be sent now; empty if there are none."""
        raise NotImplementedError

    def sent(self, count: int) -> None:
        raise NotImplementedError

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def push(self) -> None:
        self.is_blocked = False
        while piece := self.outgoing():
            try:
                count = self.client.socket.send(piece)
            except BlockingIOError:
                self.is_blocked = True
                return
            self.sent(count)

    def pull(self) -> None:
        try:
            data = self.client.socket.recv(_RECEIVED_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise WireFailed("the broker closed the connection")
        self.received(data)


class Publisher(LoadConnection):
    """Publishes the same message repeatedly, with at most `window` messages unconfirmed."""

    def __init__(self, client: Client, queue: str, body_bytes: int, window: int, most: int) -> None:
        super().__init__(client)
        message = encode_publish(queue, bytes(body_bytes))
        self._size = len(message)
        self._block = memoryview(message * max(2, _BLOCK_BYTES // self._size))
        self._window = window
        self._most = most
        self._sent_bytes = 0
        self._rest = b""
        self._out_of_order: set[int] = set()  # confirmed before an earlier message was
        self.confirmed = 0
        client.select_confirms()

    @property
    def is_done(self) -> bool:
        return self.confirmed >= self._most

    def stop(self) -> None:
        """Begins no further message; one that is partly sent is completed."""
        self._most = min(self._most, -(-self._sent_bytes // self._size))

    def outgoing(self) -> memoryview:
        allowed = min(self._most, self.confirmed + self._window) * self._size - self._sent_bytes
        start = self._sent_bytes % self._size
        return self._block[start : start + max(allowed, 0)]

    def sent(self, count: int) -> None:
        self._sent_bytes += count

    def received(self, data: bytes) -> None:
        data = self._rest + data
        whole = len(data) // _CONFIRM.size * _CONFIRM.size
        self._rest = data[whole:]
        out_of_order = self._out_of_order
        for _, _, length, class_, method, tag, is_multiple, end in _CONFIRM.iter_unpack(data[:whole]):
            check_confirm_frame(length, (class_, method), end, data)
            if is_multiple:
                self.confirmed = max(self.confirmed, tag)
            elif tag == self.confirmed + 1:
                self.confirmed = tag
            else:
                out_of_order.add(tag)
                continue
            if out_of_order:
                self._join_out_of_order()

    def _join_out_of_order(self) -> None:
        self._out_of_order = {tag for tag in self._out_of_order if tag > self.confirmed}
        while self.confirmed + 1 in self._out_of_order:
            self.confirmed += 1
            self._out_of_order.discard(self.confirmed)


class Consumer(LoadConnection):
    """Acknowledges each delivery with a frame of its own. All deliveries have the same length; this is checked at the
    first and last delivery of each received chunk."""

    def __init__(self, client: Client, queue: str, prefetch: int, most: int) -> None:
        super().__init__(client)
        self._acks = encode_acks(most)
        self._acked_bytes = 0
        self._rest = b""
        self._size = 0
        self._head = b""
        self.delivered = 0
        client.limit(prefetch)
        self._begin = memoryview(encode_consume(queue))

    @property
    def is_all_acked(self) -> bool:
        """True if all delivered messages are acknowledged."""
        return self._acked_bytes == self.delivered * ACK_BYTES

    def outgoing(self) -> memoryview:
        return self._begin or self._acks[self._acked_bytes : self.delivered * ACK_BYTES]

    def sent(self, count: int) -> None:
        if self._begin:
            self._begin = self._begin[count:]
        else:
            self._acked_bytes += count

    def received(self, data: bytes) -> None:
        data = self._rest + data
        if not self._size:
            self._size = delivery_bytes(data) or 0
            self._head = data[:_HEAD_BYTES]
        whole = len(data) // self._size if self._size else 0
        for index in {0, whole - 1} if whole else ():
            start = index * self._size
            if data[start : start + _HEAD_BYTES] != self._head or data[start + self._size - 1] != 0xCE:
                raise WireFailed(f"deliveries differ in length: {data[start : start + self._size]!r}")
        self._rest = data[whole * self._size :]
        self.delivered += whole


def drive(connections: Sequence[LoadConnection], is_done: Callable[[], bool], stop_s: float | None = None) -> None:
    """Runs until `is_done`. From `stop_s` on, publishers begin no further message."""
    give_up_s = time.perf_counter() + PATIENCE_S
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.client.socket.setblocking(False)
            selector.register(connection.client.socket, selectors.EVENT_READ, connection)
        waiting = set[LoadConnection]()
        for connection in connections:
            _push(selector, waiting, connection)
        while not is_done():
            now_s = time.perf_counter()
            if stop_s is not None and now_s >= stop_s:
                stop_s = None
                for connection in connections:
                    if isinstance(connection, Publisher):
                        connection.stop()
            if now_s > give_up_s:
                raise WireFailed(f"not all messages were confirmed or acknowledged within {PATIENCE_S} s")
            for key, events in selector.select(0.05):
                connection = key.data
                if events & selectors.EVENT_READ:
                    connection.pull()
                _push(selector, waiting, connection)
    for connection in connections:
        connection.client.socket.settimeout(PATIENCE_S)


def _push(selector: selectors.BaseSelector, waiting: set[LoadConnection], connection: LoadConnection) -> None:
    connection.push()
    if connection.is_blocked != (connection in waiting):
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.is_blocked else 0)
        selector.modify(connection.client.socket, events, connection)
        (waiting.add if connection.is_blocked else waiting.discard)(connection)
