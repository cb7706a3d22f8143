"""A broker for the matrix of rights of RocketMQ's requests: a topic, a group, users, and a request of every code."""

from __future__ import annotations

import json
import zlib
from typing import Any

from protocols.rocketmq.handlers.test_register_broker import TOPICS, body_of
from protocols.rocketmq.rocketmq_desk import Desk, Peer, read_frame
from protocols.rocketmq.test_logins import SECRET, signature
from security.rights_cells import entry_of

from trimq.core.metadata.catalogue import Definition
from trimq.core.security.passwords import hash_password
from trimq.core.security.resources import Action, ResourceKind
from trimq.core.security.users import User
from trimq.formats.rocketmq_unit.batch_body import write_batch
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.wire.codes import ResponseCode
from trimq.wire.remoting import Command

HASH = hash_password("bob's", b"salt" * 4)
NO_PERMISSION = ResponseCode.NO_PERMISSION

# Fields of all requests; each reads those that it knows.
_COMMON: dict[str, Any] = {
    "topic": "t",
    "group": "g",
    "groupName": "g",
    "consumerGroup": "g",
    "producerGroup": "pg",
    "clientId": "c",
    "clientID": "c",
    "queueId": 0,
    "offset": 0,
    "timestamp": 0,
    "namespace": "ns",
    "key": "k",
    "value": "v",
    "brokerName": "other",
    "brokerAddr": "1.2.3.4:1",
    "clusterName": "DefaultCluster",
    "brokerId": 0,
    "cluster": "DefaultCluster",
    "beginTimestamp": 0,
    "endTimestamp": 1 << 60,
    "maxNum": 32,
}
_SEND = {"producerGroup": "pg", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0}
_SEND |= {"sysFlag": 0, "bornTimestamp": 77, "flag": 0, "properties": "KEYS\x01k\x02"}
_SEND_V2 = dict(zip("abcdefghi", _SEND.values(), strict=True))
_PULL = {"queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "subscription": "*"}
_POP = {"maxMsgNums": 1, "invisibleTime": 1000, "pollTime": 0, "bornTime": 0, "initMode": 0, "exp": "*"}
_POP |= {"expType": "TAG", "order": False}
_RECEIPT = {"extraInfo": "0 1700000000000 60000 0 0 broker-a 0 0", "offset": 0, "invisibleTime": 60_000}
_BATCH = {"c": "g", "t": "t", "r": "0", "so": 0, "rq": 0, "q": 0, "pt": 1, "it": 60_000, "b": "AQAAAAAAAAA="}
_TOPIC = {"topic": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
_OTHER = body_of(TOPICS)
_ROW = {"topicName": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
_CONSUMER = {"groupName": "g", "subscriptionDataSet": [], "consumeType": "CONSUME_POP"}
_LOCKED = {"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "t", "brokerName": "broker-a", "queueId": 0}]}
_ACL = {"subject": "User:bob", "policies": [{"policyType": "Custom", "entries": [
    {"resource": "Topic:other", "actions": ["Pub"], "decision": "Allow"}]}]}  # fmt: skip
_USER = {"username": "carol", "password": "hers", "userType": "Normal", "userStatus": "enable"}
_HALF = {**_SEND_V2, "e": 1, "f": 4, "i": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01U\x02"}
_ID, _AT = "the id of a message", "the position of a message"
_POSITION, _OFFSET = "the position of a half message", "the offset of a half message"

REQUESTS: dict[int, tuple[dict[str, Any], Any]] = {
    10: (_SEND, b"hello"),
    310: (_SEND_V2, b"hello"),
    320: ({**_SEND_V2, "i": "", "m": True}, write_batch([(0, b"one", b"")])),
    324: ({**_SEND, "properties": "CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01c\x02CLUSTER\x01DefaultCluster"}, b"x"),
    325: ({**_SEND_V2, "i": "CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01c\x02CLUSTER\x01DefaultCluster"}, b"x"),
    11: (_PULL, b""),
    361: (_PULL, b""),
    200050: (_POP, b""),
    200052: ({"maxMsgNums": 1}, b""),
    200054: ({"pollTime": 0, "bornTime": 0}, b""),
    200051: (_RECEIPT, b""),
    200053: (_RECEIPT, b""),
    200151: ({}, {"brokerName": "broker-a", "acks": [_BATCH]}),
    400: ({}, {"topic": "t", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG"}),
    401: ({}, {"topic": "t", "consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 0}),
    15: ({"commitOffset": 1}, b""),
    36: ({"offset": 0, "delayLevel": 3, "originMsgId": "x", "originTopic": "t", "maxReconsumeTimes": 16}, b""),
    33: ({"offset": _AT}, b""),
    37: ({"tranStateTableOffset": _OFFSET, "commitLogOffset": _POSITION, "commitOrRollback": 8}, b""),
    323: ({"msgId": _ID}, b""),
    34: ({}, {"clientID": "c", "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": [_CONSUMER]}),
    46: ({}, {"clientId": "c", "group": "g", "subscriptionData": {"topic": "t", "subString": "*"}}),
    41: ({}, _LOCKED),
    42: ({}, _LOCKED),
    200: ({}, {"groupName": "g", "retryMaxTimes": 3}),
    225: ({}, {"groupConfigList": [{"groupName": "g"}]}),
    353: ({"readable": True}, b""),
    222: ({"timestamp": 0, "isForce": True, "offset": 0}, b""),
    314: ({"srcGroup": "g", "destGroup": "h", "offline": False}, b""),
    308: ({"compareGroup": "g", "filterGroups": "g"}, b""),
    223: ({"clientAddr": ""}, b""),
    345: ({}, b""),
    307: ({"jstackEnable": False}, b""),
    309: ({"msgId": _ID}, b""),
    208: ({"isOrder": False}, b""),
    315: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"}, b""),
    17: (_TOPIC, b""),
    18: ({}, {"topicConfigList": [_ROW]}),
    25: ({}, b"maxMessageSize=1000000\n"),
    321: ({"index": 0, "count": 10}, b""),
    370: ({"recallHandle": "x"}, b""),
    3001: ({}, _USER),
    3002: ({"username": "alice"}, {"username": "alice", "userType": "Normal"}),
    3003: ({"username": "bob"}, b""),
    3004: ({"username": "alice"}, b""),
    3005: ({"filter": ""}, b""),
    3006: ({"subject": "User:bob"}, _ACL),
    3007: ({"subject": "User:bob"}, _ACL),
    3008: ({"subject": "User:bob"}, b""),
    3009: ({"subject": "User:bob"}, b""),
    3010: ({"subjectFilter": "", "resourceFilter": ""}, b""),
    103: ({"haServerAddr": "1.2.3.4:2", "compressed": False, "bodyCrc32": zlib.crc32(_OTHER) & 0x7FFFFFFF}, _OTHER),
    217: ({}, {"queueDatas": []}),
    318: ({}, b"orderMessageEnable=true\n"),
    322: ({}, {"counter": 1}),
    210001: ({"version": 1}, b""),
}


class World:
    """`root` may administer; `alice` has the rights that a test gives her; `nobody` does not log in."""

    def __init__(self) -> None:
        self.desk = Desk()
        users = self.desk.core.broker.users
        for name in ("root", "alice"):
            users.define(SYSTEM, name, f"{name}'s", name == "root", lambda ticket: None, secret=f"{SECRET} of {name}")
            self.desk.runner.settle()
        users.remove(SYSTEM, "guest")
        self.access = self.desk.core.broker._access
        doors = self.desk.doors
        self._peers: dict[tuple[str, bool], Peer] = {
            (user, is_broker): self.desk.connect(None if is_broker else doors.name_server())
            for user in ("root", "alice", "anonymous")
            for is_broker in (True, False)
        }
        self._places: dict[Any, Any] = {}
        self.answer: Command
        """The last one."""
        self.prepare()

    def prepare(self) -> None:
        """Restores what allowed requests may have removed."""
        assert self.ask("root", 17, True, {**_COMMON, **_TOPIC}) == 0
        assert self.ask("root", 200, True, {}, {"groupName": "g"}) == 0
        if not any(user.name == "bob" for user in self.access.users()):
            self.access.put_user(User("bob", HASH))
        self.access.remove_user("carol") if self.access.is_user("carol") else None
        assert self.ask("root", 310, True, _SEND_V2, b"hello") == 0
        self._places[_ID] = self.answer.fields["msgId"]
        self._places[_AT] = int(self.answer.fields["msgId"][16:], 16)
        self.access.entries.put(entry_of((Action.READ, ResourceKind.TOPIC), user="bob"))
        assert self.ask("root", 310, True, _HALF, b"half") == 0
        self._places[_POSITION] = int(self.answer.fields["msgId"][16:], 16)
        self._places[_OFFSET] = self.answer.fields["queueOffset"]
        body = {"clientID": "c", "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": [_CONSUMER]}
        assert self.ask("root", 34, True, {}, body) == 0
        assert self.ask("root", 15, True, {**_COMMON, "commitOffset": 1}) == 0

    def ask(self, user: str, code: int, is_broker: bool, fields: dict[str, Any], body: Any = b"") -> int | None:
        """Returns the code of the answer; None if there is none yet."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
        if user != "anonymous":
            texts["AccessKey"] = user
            texts["Signature"] = signature(texts, data, f"{SECRET} of {user}")
        reply = self._peers[user, is_broker].begin(code, texts, data)
        if reply is None or not self.desk.is_ready(reply):
            return None
        self.answer = read_frame(reply.take())
        return self.answer.code

    def send(self, user: str, code: int, is_broker: bool) -> int | None:
        """Sends the request of the table."""
        fields, body = REQUESTS.get(code, ({}, b""))
        given = {name: self._places.get(value, value) for name, value in {**_COMMON, **fields}.items()}
        return self.ask(user, code, is_broker, given, body)

    def state(self) -> dict[str, Any]:
        """Everything that a request could change, except entries."""
        core = self.desk.core
        kinds: dict[str, dict[str, Definition]] = self.access._users._catalogue._kinds
        assert core.commit_log_service is not None
        commit_log = core.commit_log_service.commit_log
        routes = self.ask("root", 106, False, {})
        return {
            "definitions": {kind: dict(found) for kind, found in kinds.items() if kind != "acl"},
            "log": commit_log.lookup.log_ends(),
            "cursors": {group: dict(core.cursors.all(group)) for group in ("g", "h")},
            "routes": routes,
        }
