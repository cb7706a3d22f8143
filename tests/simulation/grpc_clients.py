"""gRPC clients of the simulated broker: senders, and consumers that receive and acknowledge in a group with members of
both front-ends."""

from __future__ import annotations

import asyncio
import struct
from random import Random
from typing import Any

from client_connection import ClientConnection, Lost
from clients import Client
from grpc_connection import GrpcConnection
from popping_clients import Popper
from popping_promises import PoppingPromises, Receipt
from rocketmq_clients import QUEUES, TOPICS, RocketMQClient
from rocketmq_promises import PLAIN, Message, RocketMQPromises
from simulated_trace import SimulationFailure
from simulated_wires import Peer
from surroundings import Surroundings

from trimq.protocols.rocketmq.grpc.clients.message_view import set_ms
from trimq.protocols.rocketmq.grpc.front_end import METHODS
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code, MessageType
from trimq.protocols.rocketmq.wire import codes as remoting
from trimq.protocols.rocketmq.wire.codes import RequestCode

GRPC_PORT = 8081
INVISIBLE_MS = (10_000, 60_000)  # gRPC accepts no shorter time

ASK_AGAIN = (Code.INTERNAL_SERVER_ERROR, Code.TOO_MANY_REQUESTS)
NOT_YET = (Code.TOPIC_NOT_FOUND, Code.CONSUMER_GROUP_NOT_FOUND)


class Caller(Client):
    """One client's connection to the gRPC port."""

    keeps_order = False

    def __init__(self, name: str, random: Random, surroundings: Surroundings) -> None:
        super().__init__(name, random, surroundings)
        self.port = GRPC_PORT

    def make_connection(self, peer: Peer) -> ClientConnection:
        surroundings = self.surroundings
        return GrpcConnection(surroundings.loop, peer, surroundings.outdated(), self.name)

    async def begin(self, method: str, *requests: Any) -> list[asyncio.Future[bytes]]:
        """Begins several calls on one connection."""
        connection = await self.connection()
        assert isinstance(connection, GrpcConnection)
        answers = []
        for request in requests:
            id = connection.next_id()
            answers.append(connection.send(id, connection.encode(id, method, request.SerializeToString())))
        return answers

    async def settle(self, method: str, answer: asyncio.Future[bytes]) -> list[Any]:
        """Returns the messages of the response."""
        data = await self.answer(answer, method)
        found = []
        while data:
            _, size = struct.unpack_from(">BI", data)
            found.append(METHODS[method].response.FromString(data[5 : 5 + size]))
            data = data[5 + size :]
        statuses = [each.status for each in found if each.HasField("status")]
        self.note(f"is answered {[status.code for status in statuses]} to {method}")
        if any(status.code == Code.MASTER_PERSISTENCE_TIMEOUT for status in statuses):
            raise Lost  # may be stored after a crash, or not: as without a response
        return found

    async def call(self, method: str, request: Any) -> list[Any]:
        (answer,) = await self.begin(method, request)
        return await self.settle(method, answer)

    def expect(self, status: Any, *others: Code) -> None:
        if status.code not in (*ASK_AGAIN, *others):
            raise SimulationFailure(f"{self.name} was refused with {status.code}: {status.message}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class GrpcSender(RocketMQClient):
    """Sends single messages, some at a time, to topics that it creates by remoting: auto-created topics take no
    messages over gRPC."""

    def __init__(
        self, name: str, random: Random, surroundings: Surroundings, message_promises: RocketMQPromises
    ) -> None:
        super().__init__(name, random, surroundings, message_promises)
        self._caller = Caller(name, random, surroundings)
        self._is_prepared = False

    async def run(self) -> None:
        await super().run()
        self._caller.close()

    async def _prepare(self) -> bool:
        if not self._is_prepared:
            counts = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
            for topic in TOPICS:
                fields = {"topic": topic, **counts, "attributes": "+message.type=NORMAL"}
                header, _ = await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
                self.expect(header, remoting.ResponseCode.SUCCESS)
                if header["code"] != remoting.ResponseCode.SUCCESS:
                    return False
            self._is_prepared = True
        return True

    async def act(self) -> bool:
        if not await self._prepare():
            return False
        topic, _ = self.pick()
        bodies = [self.new_body() for _ in range(self.random.choice((1, 1, 4)))]
        await self._caller.connection()
        for body in bodies:
            self.message_promises.asked(body, Message(topic, PLAIN))
        answers = await self._caller.begin("SendMessage", *(self._request(topic, body) for body in bodies))
        return all([await self._settle(body, answer) for body, answer in zip(bodies, answers, strict=True)])

    def _request(self, topic: str, body: bytes) -> Any:
        delivered = {"message_id": f"{self.random.getrandbits(60):X}", "message_type": MessageType.NORMAL}
        system = wire.SystemProperties(**delivered, body_encoding=1, keys=[f"k{self._number % 3}"])
        set_ms(system.born_timestamp, self.surroundings.now_ms())
        message = wire.Message(topic=wire.Resource(name=topic), system_properties=system, body=body)
        return wire.SendMessageRequest(messages=[message])

    async def _settle(self, body: bytes, answer: asyncio.Future[bytes]) -> bool:
        try:
            (found,) = await self._caller.settle("SendMessage", answer)
        except Lost:
            return False
        if found.status.code != Code.OK:
            self._caller.expect(found.status, *NOT_YET)
            self.message_promises.refused(body)
            return False
        self.message_promises.acknowledged_somewhere(body, found.entries[0].offset)
        return True


class GrpcPopper(Popper):
    """A group member that receives and acknowledges by gRPC, and reads the group's own topics by remoting."""

    def __init__(
        self,
        name: str,
        random: Random,
        surroundings: Surroundings,
        message_promises: RocketMQPromises,
        group: PoppingPromises,
    ) -> None:
        super().__init__(name, random, surroundings, message_promises, group)
        self._caller = Caller(name, random, surroundings)

    async def run(self) -> None:
        await super().run()
        self._caller.close()

    async def _pop(self, is_finishing: bool) -> bool:
        topic, _ = self.pick()
        request = wire.ReceiveMessageRequest(
            group=wire.Resource(name=self._group.group),
            message_queue=wire.MessageQueue(topic=wire.Resource(name=topic), id=-1),
            filter_expression=wire.FilterExpression(type=1, expression="*"),
            batch_size=self.random.choice((1, 4, 32)),
        )
        set_ms(request.invisible_duration, invisible_ms := self.random.choice(INVISIBLE_MS))
        set_ms(request.long_polling_timeout, 0 if is_finishing else self.random.choice((0, 100, 10_000)))
        answers = await self._caller.call("ReceiveMessage", request)
        status = next(each.status for each in answers if each.HasField("status"))
        if status.code != Code.OK:
            self._caller.expect(status, Code.MESSAGE_NOT_FOUND, *NOT_YET)
            return status.code not in ASK_AGAIN
        messages = [each.message for each in answers if each.HasField("message")]
        if len(messages) > request.batch_size:
            raise SimulationFailure(f"{self.name} asked for {request.batch_size} messages and got {len(messages)}")
        receipts = [self._read_message(topic, message, invisible_ms) for message in messages]
        for receipt in receipts:
            self._group.delivered([receipt], int(receipt.text.split(" ")[1]))
        self._held += receipts
        return True

    def _read_message(self, topic: str, message: Any, invisible_ms: int) -> Receipt:
        system = message.system_properties
        text = system.receipt_handle
        _, pop_time_ms, _, _, mark, _, queue, offset, *_ = text.split(" ")
        name = topic if mark == "0" else self.message_promises.retry_topic(self._group, topic)
        place = (name, int(queue), int(offset))
        return Receipt(message.body, place, system.delivery_attempt - 1, text, int(pop_time_ms) + invisible_ms)

    # -- acknowledgement

    def _topic_of(self, receipt: Receipt) -> Any:
        """Returns the topic that the message was sent to, also for a revived copy."""
        return wire.Resource(name=self.message_promises.message(receipt.body).topic)

    async def _ack(self, receipt: Receipt) -> bool:
        return await self._ack_together([receipt])

    async def _ack_together(self, receipts: list[Receipt]) -> bool:
        """Acknowledges each by its own call, all at once."""
        await self._caller.connection()
        requests = []
        for receipt in receipts:
            self._group.ack_asked(receipt)
            entry = wire.AckMessageEntry(message_id="id", receipt_handle=receipt.text)
            group, topic = wire.Resource(name=self._group.group), self._topic_of(receipt)
            requests.append(wire.AckMessageRequest(group=group, topic=topic, entries=[entry]))
        answers = await self._caller.begin("AckMessage", *requests)
        return all([await self._acked(receipt, answer) for receipt, answer in zip(receipts, answers, strict=True)])

    async def _acked(self, receipt: Receipt, answer: asyncio.Future[bytes]) -> bool:
        try:
            (found,) = await self._caller.settle("AckMessage", answer)
        except Lost:
            return False
        if found.status.code != Code.OK:
            self._caller.expect(found.status, Code.INVALID_RECEIPT_HANDLE)
            return found.status.code == Code.INVALID_RECEIPT_HANDLE
        self._group.acked(receipt, self.surroundings.now_ms())
        return True

    async def _change(self, receipt: Receipt) -> bool:
        invisible_ms = self.random.choice(INVISIBLE_MS)
        await self._caller.connection()
        before_ms = self._group.change_asked(receipt, self.surroundings.now_ms(), invisible_ms)
        request = wire.ChangeInvisibleDurationRequest(
            group=wire.Resource(name=self._group.group), topic=self._topic_of(receipt), receipt_handle=receipt.text
        )
        set_ms(request.invisible_duration, invisible_ms)
        (found,) = await self._caller.call("ChangeInvisibleDuration", request)
        if found.status.code == Code.INVALID_RECEIPT_HANDLE:
            self._group.change_without_lease(receipt, before_ms, self.surroundings.now_ms())
            return True
        if found.status.code != Code.OK:
            self._caller.expect(found.status)
            self._group.change_refused(receipt, before_ms)
            return False
        text = found.receipt_handle
        self._group.changed(receipt, text, int(text.split(" ")[1]) + invisible_ms)
        self._held.append(receipt)
        return True
