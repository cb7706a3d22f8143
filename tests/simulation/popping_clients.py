"""POP clients of the simulated broker: they ack, extend, return or leave messages, and at the end receive all messages
owed to their group."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from popping_promises import PoppingPromises, Receipt
from rocketmq_clients import ASK_AGAIN, NOTHING, RocketMQClient
from rocketmq_promises import DLQ_PREFIX, RocketMQPromises
from simulated_trace import SimulationFailure
from surroundings import Surroundings

from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import read_unit, unit_size
from trimq.protocols.rocketmq.wire.codes import RequestCode, ResponseCode

INVISIBLE_MS = (1_000, 5_000, 60_000)


class Popper(RocketMQClient):
    """A member of a group."""

    def __init__(
        self,
        name: str,
        random: Random,
        surroundings: Surroundings,
        message_promises: RocketMQPromises,
        group: PoppingPromises,
    ) -> None:
        super().__init__(name, random, surroundings, message_promises)
        self._group = group
        self._is_prepared = False
        self._attempt_id = ""
        self._held: list[Receipt] = []
        self._dead_letters = 0

    async def act(self) -> bool:
        is_finishing = self.surroundings.is_finishing
        if not await self._prepare():
            return False
        if self._held and (is_finishing or self.random.random() < 0.6):
            return await self._settle_some() and not is_finishing
        if not await self._pop(is_finishing):
            return False
        if not is_finishing:
            return True
        if self._held or not await self._read_dead_letters():
            return False
        if self.message_promises.owed_to(self._group):
            await asyncio.sleep(5)
            return False
        return True

    async def _read_dead_letters(self) -> bool:
        name = f"{DLQ_PREFIX}{self._group.group}"
        while units := await self.pull(name, 0, self._dead_letters, self.name):
            self._dead_letters += len(units)
        return units is not None

    async def _prepare(self) -> bool:
        """Defines the group before anything is popped."""
        if self._is_prepared:
            return True
        config = {"groupName": self._group.group, "retryMaxTimes": self._group.limit}
        header, _ = await self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(config).encode())
        self.expect(header, ResponseCode.SUCCESS)
        self._is_prepared = header["code"] == ResponseCode.SUCCESS
        return self._is_prepared

    async def _pop(self, is_finishing: bool) -> bool:
        topic, queue = self.pick()
        group = self._group
        self._attempt_id = self._attempt_id or f"{self.random.getrandbits(60):x}"
        fields = {
            "consumerGroup": group.group,
            "topic": topic,
            "queueId": self.random.choice((-1, queue)),
            "maxMsgNums": self.random.choice((1, 4, 32)),
            "invisibleTime": self.random.choice(INVISIBLE_MS),
            "pollTime": 0 if is_finishing else self.random.choice((0, 100, 10_000)),
            "initMode": 0,
            "order": group.is_ordered,
            "attemptId": self._attempt_id,
        }
        header, body = await self.ask(RequestCode.POP_MESSAGE, fields)
        self._attempt_id = ""  # acknowledges the response: the same attempt id would return the same messages
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header, ResponseCode.POLLING_TIMEOUT, *NOTHING)
            return header["code"] not in ASK_AGAIN
        receipts = self._read(topic, header["extFields"], body)
        if not group.is_ordered and len(receipts) > int(fields["maxMsgNums"]):
            raise SimulationFailure(f"{self.name} asked for {fields['maxMsgNums']} messages and got {len(receipts)}")
        group.delivered(receipts, int(header["extFields"]["popTime"]))
        self._held += receipts
        return True

    def _read(self, topic: str, fields_received: Mapping[str, str], body: bytes) -> list[Receipt]:
        starts = {
            tuple(each.split(" ")[:2]): each.split(" ")[2] for each in fields_received["startOffsetInfo"].split(";")
        }
        deadline_ms = int(fields_received["popTime"]) + int(fields_received["invisibleTime"])
        found = []
        while body:
            raw, body = body[: unit_size(body)], body[unit_size(body) :]
            unit = read_unit(raw)
            text = read_properties(unit.properties).get("POP_CK")
            if text is None:
                start = starts["0", str(unit.queue_id)]
                text = " ".join(
                    [start, *(fields_received[key] for key in ("popTime", "invisibleTime", "reviveQid")), "0"]
                )
                text += f" broker-a {unit.queue_id} {unit.queue_offset}"
                self.message_promises.seen(topic, unit.queue_id, raw, self.surroundings.now_ms())
            name = topic if text.split(" ")[4] == "0" else self.message_promises.retry_topic(self._group, topic)
            place = (name, int(text.split(" ")[6]), int(text.split(" ")[7]))
            found.append(Receipt(bytes(unit.body), place, unit.reconsume_times, text, deadline_ms))
        return found

    # -- acknowledgement

    async def _settle_some(self) -> bool:
        count = self.random.choice((1, 3, 32))
        chosen, self._held = self._held[:count], self._held[count:]
        chance = 0.0 if self.surroundings.is_finishing else self.random.random()
        if chance < 0.3:
            return await self._ack_together(chosen)
        if chance < 0.7:
            return all([await self._ack(receipt) for receipt in chosen])
        if chance < 0.9:
            return all([await self._change(receipt) for receipt in chosen])
        return True  # no ack: the leases expire

    def _fields(self, receipt: Receipt) -> dict[str, Any]:
        topic, queue, offset = receipt.place
        fields = {"consumerGroup": self._group.group, "topic": topic, "queueId": queue, "offset": offset}
        return {**fields, "extraInfo": receipt.text}

    async def _ack(self, receipt: Receipt) -> bool:
        await self.connection()
        self._group.ack_asked(receipt)
        return self._answered([receipt], (await self.ask(RequestCode.ACK_MESSAGE, self._fields(receipt)))[0])

    async def _ack_together(self, receipts: list[Receipt]) -> bool:
        acks = []
        for receipt in receipts:
            start, taken, invisible, revive, mark, _, queue, offset = receipt.text.split(" ")
            bits = (1 << int(offset) - int(start)).to_bytes(64, "little")
            ack = {"c": self._group.group, "t": receipt.place[0], "r": mark, "so": int(start), "q": int(queue)}
            times = {"rq": int(revive), "pt": int(taken), "it": int(invisible)}
            acks.append({**ack, **times, "b": base64.b64encode(bits).decode()})
        body = json.dumps({"brokerName": "broker-a", "acks": acks}).encode()
        await self.connection()
        for receipt in receipts:
            self._group.ack_asked(receipt)
        return self._answered(receipts, (await self.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body))[0])

    def _answered(self, receipts: list[Receipt], header: Mapping[str, Any]) -> bool:
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)  # the next pop shows whether the ack took effect
            return False
        for receipt in receipts:
            self._group.acked(receipt, self.surroundings.now_ms())
        return True

    async def _change(self, receipt: Receipt) -> bool:
        """Changes the invisible time, longer or shorter: in order not to zero, or a pop in the same millisecond would
        have the same receipt."""
        group = self._group
        invisible_ms = self.random.choice((int(group.is_ordered), *INVISIBLE_MS))
        await self.connection()
        before_ms = group.change_asked(receipt, self.surroundings.now_ms(), invisible_ms)
        fields = {**self._fields(receipt), "invisibleTime": invisible_ms}
        header, _ = await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)
        if header["code"] == ResponseCode.NO_MESSAGE:
            group.change_without_lease(receipt, before_ms, self.surroundings.now_ms())
            return True
        if header["code"] != ResponseCode.SUCCESS:
            self.expect(header)
            group.change_refused(receipt, before_ms)
            return False
        fields_received = header["extFields"]
        start, _, _, revive, mark, broker, queue, offset = receipt.text.split(" ")
        text = f"{start} {fields_received['popTime']} {invisible_ms} {revive} {mark} {broker} {queue} {offset}"
        group.changed(receipt, text, int(fields_received["popTime"]) + invisible_ms)
        self._held.append(receipt)
        return True
