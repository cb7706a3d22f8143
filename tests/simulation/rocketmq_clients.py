"""Clients of the simulated broker over RocketMQ's remoting: senders, pullers, and clients with delayed messages,
transactions and retries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from client_connection import ClientConnection, Lost
from clients import Client
from rocketmq_connection import ONE_WAY, RocketMQConnection, decode, encode
from rocketmq_promises import DELAYED, HALF, PLAIN, Message, RocketMQPromises
from simulated_trace import SimulationFailure
from simulated_wires import Peer
from surroundings import Surroundings

from trimq.formats.rocketmq_unit.batch_body import BatchEntry, write_batch
from trimq.formats.rocketmq_unit.unit import Unit, read_unit, unit_size
from trimq.protocols.rocketmq.wire.codes import RequestCode, ResponseCode

BROKER_PORT = 10911
TOPICS = ("fruits", "nuts")
QUEUES = 2
PRODUCERS = "deciders"
LEVELS_S = (1, 5, 10)
COMMIT, ROLLBACK = 8, 12

ASK_AGAIN = (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
NOTHING = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.TOPIC_NOT_EXIST,
)

Answer = tuple[dict[str, Any], bytes]


class RocketMQClient(Client):
    keeps_order = False

    def __init__(
        self, name: str, random: Random, surroundings: Surroundings, message_promises: RocketMQPromises
    ) -> None:
        super().__init__(name, random, surroundings)
        self.port = BROKER_PORT
        self.message_promises = message_promises
        self._number = 0
        self._registered: ClientConnection | None = None

    def make_connection(self, peer: Peer) -> ClientConnection:
        surroundings = self.surroundings
        return RocketMQConnection(surroundings.loop, peer, surroundings.outdated(), self._handle_request)

    def begin(
        self, connection: ClientConnection, code: int, fields: Mapping[str, object], body: bytes = b""
    ) -> asyncio.Future[bytes]:
        id = connection.next_id()
        return connection.send(id, encode(code, id, fields, body))

    async def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Answer:
        connection = await self.connection()
        return await self.settle(self.begin(connection, code, fields, body), code)

    async def settle(self, answer: asyncio.Future[bytes], request: object) -> Answer:
        header, body = decode(await self.answer(answer, request))
        if header["code"] != ResponseCode.PULL_NOT_FOUND:
            self.note(f"is answered {header['code']} to {request}: {header.get('extFields') or header.get('remark')}")
        if header["code"] == ResponseCode.FLUSH_DISK_TIMEOUT:
            raise Lost  # may be stored after a crash, or not: as without a response
        return header, body

    def expect(self, header: Mapping[str, Any], *others: ResponseCode) -> None:
        if header["code"] not in ASK_AGAIN and header["code"] not in others:
            raise SimulationFailure(f"{self.name} was refused with {header['code']}: {header.get('remark')}")

    def new_body(self) -> bytes:
        self._number += 1
        return f"{self.name} {self._number} ".encode() + self.random.randbytes(self.random.choice((1, 40, 400)))

    def send_fields(self, topic: str, queue: int, **properties: object) -> dict[str, object]:
        properties = {"UNIQ_KEY": f"{self.name}-{self._number}-{self.random.getrandbits(60):x}", **properties}
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        fields = {"a": PRODUCERS, "b": topic, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0}
        return {**fields, "g": self.surroundings.now_ms(), "h": 0, "i": text, "j": 0, "k": False, "m": False}

    def pick(self) -> tuple[str, int]:
        return self.random.choice(TOPICS), self.random.randrange(QUEUES)

    async def pull(self, topic: str, queue: int, offset: int, group: str, wait_ms: int = 0) -> list[Unit] | None:
        """Returns the checked messages; None if they cannot be read at the moment."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset}
        more = {"maxMsgNums": self.random.choice((1, 8, 32)), "sysFlag": 6 if wait_ms else 4, "commitOffset": 0}
        last = {"suspendTimeoutMillis": wait_ms, "subscription": "*", "subVersion": 0, "expressionType": "TAG"}
        header, body = await self.ask(RequestCode.PULL_MESSAGE, {**fields, **more, **last})
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header, *NOTHING)
            return [] if header["code"] in NOTHING else None
        units = []
        while body:
            size = unit_size(body)
            units.append(self.message_promises.seen(topic, queue, body[:size], self.surroundings.now_ms()))
            body = body[size:]
        offsets = [unit.queue_offset for unit in units]
        if offsets != list(range(offset, offset + len(units))):
            raise SimulationFailure(f"{self.name} asked for {offset} of {topic}/{queue} and got {offsets}")
        if int(header["extFields"]["maxOffset"]) < offset + len(units):
            raise SimulationFailure(f"{self.name} got {offsets}, beyond the end {header['extFields']}")
        return units

    # -- transaction check-back

    async def register_as_producer(self) -> bool:
        """Registers as a producer on this connection. Returns False if this fails for now."""
        connection = await self.connection()
        if connection is self._registered:
            return True
        data = {"clientID": self.name, "producerDataSet": [{"groupName": PRODUCERS}], "consumerDataSet": []}
        header, _ = await self.ask(RequestCode.HEART_BEAT, {}, json.dumps(data).encode())
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)
            return False
        self._registered = connection
        return True

    def _handle_request(self, header: Mapping[str, Any], body: bytes) -> None:
        if header["code"] != RequestCode.CHECK_TRANSACTION_STATE:
            return
        unit = read_unit(body)
        fields = header["extFields"]
        counts = self.message_promises.decision_asked(bytes(unit.body))
        self.note(f"is checked back about {bytes(unit.body[:20])!r}: {'commit' if counts else 'rollback'}")
        place = (int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"]))
        connection = self._connection
        assert connection is not None
        end = self.end_fields(*place, counts, asked=True)
        connection.send_only(encode(RequestCode.END_TRANSACTION, connection.next_id(), end, flag=ONE_WAY))

    def end_fields(self, offset: int, position: int, counts: bool, asked: bool) -> dict[str, object]:
        fields = {"producerGroup": PRODUCERS, "tranStateTableOffset": offset, "commitLogOffset": position}
        return {**fields, "commitOrRollback": COMMIT if counts else ROLLBACK, "fromTransactionCheck": asked}


class Sender(RocketMQClient):
    """Sends single messages, some at a time, and batches."""

    async def act(self) -> bool:
        topic, queue = self.pick()
        if self.random.random() < 0.2:
            return await self._send_batch(topic, queue)
        connection = await self.connection()
        asked = []
        for _ in range(self.random.choice((1, 1, 4))):
            body = self.new_body()
            self.message_promises.asked(body, Message(topic, PLAIN))
            fields = self.send_fields(topic, queue, KEYS=f"k{self._number % 3}")
            asked.append((body, self.begin(connection, RequestCode.SEND_MESSAGE_V2, fields, body)))
        return all([await self._settle([body], answer) for body, answer in asked])

    async def _send_batch(self, topic: str, queue: int) -> bool:
        bodies = [self.new_body() for _ in range(self.random.choice((1, 3)))]
        connection = await self.connection()
        for body in bodies:
            self.message_promises.asked(body, Message(topic, PLAIN))
        batch = write_batch(
            [BatchEntry(0, body, b"UNIQ_KEY\x01%x\x02" % self.random.getrandbits(60)) for body in bodies]
        )
        fields = {**self.send_fields(topic, queue), "m": True}
        return await self._settle(bodies, self.begin(connection, RequestCode.SEND_BATCH_MESSAGE, fields, batch))

    async def _settle(self, bodies: list[bytes], answer: asyncio.Future[bytes]) -> bool:
        try:
            header, _ = await self.settle(answer, f"sending {bodies[0][:20]!r}")
        except Lost:
            return False
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)
            for body in bodies:
                self.message_promises.refused(body)
            return False
        fields = header["extFields"]
        for number, body in enumerate(bodies):
            self.message_promises.acknowledged(body, int(fields["queueId"]), int(fields["queueOffset"]) + number)
        return True


class Delayer(RocketMQClient):
    """Sends delayed messages, by level or by time."""

    async def act(self) -> bool:
        topic, queue = self.pick()
        body = self.new_body()
        await self.connection()
        now_ms = self.surroundings.now_ms()
        if self.random.random() < 0.5:
            level = self.random.randint(1, len(LEVELS_S))
            earliest_ms, properties = now_ms + LEVELS_S[level - 1] * 1000, {"DELAY": level}
        else:
            earliest_ms = now_ms + self.random.choice((200, 3_000, 40_000))
            properties = {"TIMER_DELIVER_MS": earliest_ms}
        self.message_promises.asked(body, Message(topic, DELAYED, earliest_ms))
        self.note(f"sends {body[:20]!r} for {earliest_ms}")
        header, _ = await self.ask(RequestCode.SEND_MESSAGE_V2, self.send_fields(topic, queue, **properties), body)
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)
            self.message_promises.refused(body)
            return False
        self.message_promises.acknowledged(body, queue, -1)
        return True


class Decider(RocketMQClient):
    """Sends half messages, and commits or rolls back at once, at a check-back, or never."""

    async def act(self) -> bool:
        if not await self.register_as_producer():
            return False
        topic, queue = self.pick()
        body = self.new_body()
        await self.connection()
        self.message_promises.asked(body, Message(topic, HALF, counts=self.random.random() < 0.6))
        fields = self.send_fields(topic, queue, TRAN_MSG="true", PGROUP=PRODUCERS)
        header, _ = await self.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)
            self.message_promises.refused(body)
            return False
        self.message_promises.acknowledged(body, queue, -1)
        if self.random.random() < 0.6:
            return await self._decide(body, header["extFields"])
        return True

    async def _decide(self, body: bytes, sent: Mapping[str, str]) -> bool:
        await self.connection()
        counts = self.message_promises.decision_asked(body)
        end = self.end_fields(int(sent["queueOffset"]), int(sent["msgId"][-16:], 16), counts, asked=False)
        header, _ = await self.ask(RequestCode.END_TRANSACTION, end)
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)  # may be decided already, by a check-back
        return header["code"] == ResponseCode.SUCCESS


class Puller(RocketMQClient):
    """Reads queues by long polls, and commits its offsets."""

    def __init__(
        self, name: str, random: Random, surroundings: Surroundings, message_promises: RocketMQPromises
    ) -> None:
        super().__init__(name, random, surroundings, message_promises)
        self._offsets: dict[tuple[str, int], int] = {}

    async def act(self) -> bool:
        topic, queue = self.pick()
        if self.random.random() < 0.2:
            return await self._commit(topic, queue)
        offset = 0 if self.random.random() < 0.1 else self._offsets.get((topic, queue), 0)
        wait_ms = 0 if self.surroundings.is_finishing else self.random.choice((0, 100, 10_000))
        units = await self.pull(topic, queue, offset, self.name, wait_ms)
        if units is None:
            return False
        self._offsets[topic, queue] = offset + len(units)
        return True

    async def _commit(self, topic: str, queue: int) -> bool:
        promises = self.message_promises.cursor(self.name, topic, queue)
        offset = self.random.randrange(1000)
        await self.connection()
        promises.asked(offset)
        fields = {"consumerGroup": self.name, "topic": topic, "queueId": queue, "commitOffset": offset}
        header, _ = await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST)
            promises.refused(offset)
            return header["code"] not in ASK_AGAIN
        promises.acknowledged(offset)
        return True


class Retrier(RocketMQClient):
    """Sends some of the messages back for a retry."""

    async def act(self) -> bool:
        topic, queue = self.pick()
        units = await self.pull(topic, queue, self.random.choice((0, 3, 20)), self.name)
        if not units:
            return units is not None
        unit = self.random.choice(units)
        body, level = bytes(unit.body), self.random.randint(1, len(LEVELS_S))
        await self.connection()
        earliest_ms = self.surroundings.now_ms() + LEVELS_S[level - 1] * 1000
        self.message_promises.retry_asked(self.name, body, earliest_ms)
        fields = {"offset": unit.position, "group": self.name, "delayLevel": level, "originTopic": topic}
        header, _ = await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "maxReconsumeTimes": 16})
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)
            self.message_promises.retry_refused(self.name, body, earliest_ms)
            return False
        self.message_promises.retry_acknowledged(self.name, body)
        return True


class Auditor(RocketMQClient):
    """Reads all queues, and does not end before all expected messages have arrived."""

    def __init__(
        self,
        name: str,
        random: Random,
        surroundings: Surroundings,
        message_promises: RocketMQPromises,
        others: list[str],
    ) -> None:
        """`others`: further topics of one queue that it reads."""
        super().__init__(name, random, surroundings, message_promises)
        self._noted = -1
        places = [(topic, queue) for topic in TOPICS for queue in range(QUEUES)]
        self._offsets = dict.fromkeys(places + [(topic, 0) for topic in others], 0)

    async def act(self) -> bool:
        is_finishing = self.surroundings.is_finishing
        if not await self.register_as_producer() or not await self._read_on():
            return False
        if is_finishing and self.message_promises.owed():
            if self._noted != len(self.message_promises.owed()):
                self._noted = len(self.message_promises.owed())
                self.note(f"waits for {[body[:20] for body in self.message_promises.owed()]}")
            await asyncio.sleep(5)
            return False
        return True

    async def _read_on(self) -> bool:
        for (topic, queue), offset in self._offsets.items():
            while units := await self.pull(topic, queue, offset, self.name):
                offset += len(units)
            self._offsets[topic, queue] = offset
            if units is None:
                return False
        return True
