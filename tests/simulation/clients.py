"""Base of all clients of the simulated broker: connects, sends requests, times out or waits, reconnects, and ends after
healing."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
from client_connection import ClientConnection, Lost
from simulated_trace import SimulationFailure
from simulated_wires import Peer
from small_protocol import List, Refused, Request, decode_response, encode_request
from surroundings import Surroundings

ORDERED_PORT = 7001
UNORDERED_PORT = 7002

# Longer than the worst frozen wire, network and disk together: a client that waits so long hangs.
PATIENCE_S = 400.0

# Refusals that any request for a change may get.
USUAL_REFUSALS = ("NotRunning", "DiskFull", "DiskStalled", "WriteFailed", "Busy", "UnknownTopic")


class Client:
    """`act` does one step; it may raise `Lost`. A client ends once a step has succeeded after healing."""

    keeps_order = True
    is_calm = False

    def __init__(self, name: str, random: Random, surroundings: Surroundings) -> None:
        self.name = name
        self.random = random
        self.surroundings = surroundings
        self.promises = surroundings.promises
        self.port = ORDERED_PORT
        self._connection: ClientConnection | None = None
        self._is_patient = random.random() < 0.7

    async def act(self) -> bool:
        """Does one step; returns whether the request was executed."""
        raise NotImplementedError

    async def run(self) -> None:
        failures = 0
        while True:
            was_finishing = self.surroundings.is_finishing
            if await self._try():
                failures = 0
                if was_finishing:
                    break
                await self.surroundings.think(self.random)
            else:
                failures += 1
                await self.surroundings.pause(min(0.002 * 2 ** min(failures, 10), 1) * self.random.random())
                if was_finishing:
                    await asyncio.sleep(0.1)
        if self._connection is not None:
            self._connection.close()

    async def _try(self) -> bool:
        try:
            return await self.act()
        except Lost:
            return False

    # -- the connection

    async def connection(self) -> ClientConnection:
        """Returns the current connection, or a new one once the broker is reachable. Requests sent on it at once reach
        a recovered broker: promises of earlier runs no longer count."""
        while self._connection is None or self._connection.is_over:
            await self.surroundings.wait_until_up(self.random)
            loop = self.surroundings.loop
            try:
                peer = loop.network.connect(self.port, self.is_calm)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01 + self.random.random())
                continue
            self._connection = self.make_connection(peer)
        return self._connection

    def make_connection(self, peer: Peer) -> ClientConnection:
        surroundings = self.surroundings
        return ClientConnection(surroundings.loop, peer, self.keeps_order, surroundings.outdated())

    def note(self, event: str) -> None:
        self.surroundings.loop.trace.note(f"{self.name} {event}")

    async def answer(self, answer: asyncio.Future[bytes], request: object) -> bytes:
        """Waits for the response, or times out and closes the connection."""
        is_patient = self._is_patient or self.random.random() < 0.9
        limit_s = PATIENCE_S if is_patient else self.random.choice((0.01, 1, 20)) * self.random.random()
        timer = self.surroundings.loop.call_later(limit_s, _give_up, answer)
        try:
            return await answer
        except Lost:
            self.note(f"loses its connection, without an answer to {brief(request)}")
            raise
        except asyncio.CancelledError:
            if is_patient:
                reason = f"{self.name} waits for ever for a response to {brief(request)}"
                raise SimulationFailure(reason) from None
            self.note(f"gives up waiting for an answer to {brief(request)}")
            assert self._connection is not None
            self._connection.close()
            raise Lost from None
        finally:
            timer.cancel()


def _give_up(answer: asyncio.Future[bytes]) -> None:
    answer.cancel()


class SmallClient(Client):
    """A client of the small protocol."""

    def __init__(self, name: str, random: Random, surroundings: Surroundings) -> None:
        super().__init__(name, random, surroundings)
        self.keeps_order = random.random() < 0.5
        self.port = ORDERED_PORT if self.keeps_order else UNORDERED_PORT
        self._topics: list[tuple[str, bytes, int]] = []

    def begin(self, connection: ClientConnection, request: Request) -> asyncio.Future[bytes]:
        id = connection.next_id()
        return connection.send(id, encode_request(id, request))

    async def ask(self, request: Request) -> object:
        """Returns the value; raises Refused or Lost."""
        connection = await self.connection()
        return self.decode(request, await self.answer(self.begin(connection, request), request))

    def decode(self, request: Request, body: bytes) -> object:
        try:
            value = decode_response(request, body)
        except Refused as refused:
            self.note(f"is refused with {refused.name}: {brief(request)}")
            raise
        if not isinstance(request, List):
            self.note(f"is answered {brief(value)} to {brief(request)}")
        return value

    def expect(self, refused: Refused, *others: str) -> None:
        if refused.name not in (*USUAL_REFUSALS, *others):
            raise SimulationFailure(f"{self.name} was refused: {refused.name}")

    async def list_topics(self, padding: bytes = b"", echo_bytes: int = 0) -> list[tuple[str, bytes, int]]:
        await self.connection()
        gone = self.promises.gone_topics()
        answer: Any = await self.ask(List(padding, echo_bytes))
        topics = [(name, id, streams) for name, id, streams in answer[0]]
        self.promises.listed(topics, gone)
        return topics

    async def choose_topic(self) -> tuple[bytes, int] | None:
        """Returns a topic from the last listing, and one of its streams."""
        if not self._topics or self.random.random() < 0.1:
            self._topics = await self.list_topics()
        if not self._topics:
            return None
        _, id, streams = self.random.choice(self._topics)
        return id, self.random.randrange(streams)

    def forget_topics(self) -> None:
        self._topics = []


def brief(thing: object) -> str:
    """Returns a short text of a request or a response for the trace."""
    if isinstance(thing, bytes):
        return thing[:4].hex() if len(thing) == 16 else f"{bytes(thing[:24])!r}"
    if isinstance(thing, list):
        return f"{len(thing)} of {brief(thing[0])}" if thing else "nothing"
    if isinstance(thing, msgspec.Struct):
        fields = (brief(getattr(thing, name)) for name in thing.__struct_fields__)
        return f"{type(thing).__name__}({', '.join(fields)})"
    return str(thing)


def make_bodies(client: Client, number: int, count: int, size: int) -> list[bytes]:
    """Returns unique records that contain their send time."""
    now_ms = client.surroundings.now_ms()
    random = client.random
    return [
        f"{client.name} {number}.{part} @{now_ms} ".encode() + random.randbytes(random.randint(0, size))
        for part in range(count)
    ]


def sent_ms(body: bytes) -> int:
    return int(body.split(b"@", 1)[1].split(b" ", 1)[0])
