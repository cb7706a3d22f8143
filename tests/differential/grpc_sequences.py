"""Generated sequences of RocketMQ's gRPC API, for TriMQ and Apache RocketMQ."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.rocketmq_peer import rocketmq_in
from differential.grpc_driver import GrpcDriver
from differential.sequences import Difference, Explained, Step
from tools.broker import running

PAGE = "docs/rocketmq.md"


def _is_only_in_flight(found: Difference) -> bool:
    return "mismatch" in found.step.arguments and found.ours != "OK"


def _is_decided_once(found: Difference) -> bool:
    is_end = found.step.request == "EndTransaction"
    return is_end and (found.ours, found.theirs) == ("INTERNAL_SERVER_ERROR", "OK")


def _is_acknowledged_twice(found: Difference) -> bool:
    return found.step.request == "AckMessage" and found.step.connection == GROUPS.index("$o0") and found.ours == "OK"


def _is_entry_per_message(found: Difference) -> bool:
    if "several" not in found.step.arguments or ".entries" not in found.path:
        return False
    ours, theirs = (answer[0].get("entries", []) for answer in (found.our_answer, found.their_answer))
    return len(ours) == len(found.step.arguments["message"]["messages"]) and len(theirs) == 1


def _is_old_half_message(found: Difference) -> bool:
    """The check-back is for a message that was born long ago, as its producer says."""
    if found.step.request != "check-back" or not found.our_answer:
        return False
    asked = found.our_answer[0].get("recover_orphaned_transaction_command", {}).get("message", {})
    born = [
        message["system_properties"].get("born_timestamp", "")
        for step in found.earlier
        if step.request == "SendMessage"
        for message in step.arguments["message"].get("messages", ())
        if f"${asked.get('system_properties', {}).get('message_id')}" == message["system_properties"].get("message_id")
    ]
    return bool(born) and not born[0].startswith("<now")


EXPLAINED = (
    Explained("longest-delay", lambda each: "long" in each.step.arguments),
    Explained("decided-once", _is_decided_once),
    Explained("acknowledged-twice", _is_acknowledged_twice),
    Explained("entry-per-message", _is_entry_per_message),
    Explained("age-of-half-message", _is_old_half_message, is_last=True),
    Explained("replaced-receipt", lambda each: "again" in each.step.arguments),
    Explained("only-in-flight", _is_only_in_flight),
    Explained("new-kinds", lambda each: each.step.request in ("create new kind", "new kind of client")),
    Explained("settings-not-needed", lambda each: each.step.request == "receive unregistered"),
    Explained("body-digest", lambda each: "digest" in each.step.arguments),
    Explained("empty-batch", lambda each: each.step.request == "receive none"),
    Explained("unknown-language", lambda each: each.step.request == "without language"),
    Explained("undecodable-request", lambda each: each.step.request == "garbage"),
)

Content = dict[str, Any]

TOPICS = {"$n0": "NORMAL", "$f0": "FIFO", "$d0": "DELAY", "$x0": "TRANSACTION"}
"""Topics that every sequence has, and the type of their messages."""
GROUPS = ("$g0", "$o0", "$b0")
"""Groups that every sequence has: for any order, in order, and without retries."""

CLIENT_TYPES = ("PRODUCER", "PUSH_CONSUMER", "SIMPLE_CONSUMER", "PULL_CONSUMER", "CLIENT_TYPE_UNSPECIFIED")
ODD_TOPICS = (
    "",
    " ",
    "a b",
    "a.b",
    "rmq_sys_x",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "$none",
    "%RETRY%$gone",
    "<text 128>",
)
ODD_GROUPS = ("", " ", "a b", "a.b", "CID_RMQ_SYS_x", "$gone", "%RETRY%$g0", "<text 256>")
ODD_TEXTS = ("", " ", "\t", "a\nb", "\x7f", "\x85", "\x00", "\u00a0", "é", "\U0001f600", "a|b", "a||b", "\u2028")


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[GrpcDriver, GrpcDriver]]:
    (folder / "ours").mkdir()
    more = {
        "enablePropertyFilter": "true",
        "recallMessageEnable": "true",
        "transactionCheckInterval": 1000,
        "transactionTimeOut": 3000,
        "transactionCheckMax": 2,
    }
    flags = ["--rocketmq-transaction-check-interval-ms", "1000", "--rocketmq-transaction-timeout-ms", "3000"]
    flags += ["--rocketmq-transaction-check-max", "2"]
    with (
        running(folder / "ours", flags) as addresses,
        rocketmq_in(folder / "theirs", "async", more) as peer,
    ):
        yield (
            GrpcDriver("a", addresses["rocketmq_grpc"], addresses["rocketmq_broker"], "broker-trimq"),
            GrpcDriver("b", f"127.0.0.1:{peer.grpc_port}", f"127.0.0.1:{peer.port}", "broker-a"),
        )


def generate(source: random.Random) -> list[Step]:
    """Requests of all kinds. Before them come the topics and groups that they name, and the settings of the consumers.
    Sends that are received are sent right before. One sequence in five ends with a request whose explained difference
    changes what follows."""
    steps: list[Step] = []
    for _ in range(source.randrange(3, 14)):
        kind = source.choices([each for each, _ in REQUESTS], [weight for _, weight in REQUESTS])[0]
        steps += kind(source)
    if source.random() < 0.2:
        steps += source.choice(LAST)(source)
    said = json.dumps([step.arguments for step in steps])
    begin = [_create_topic(name, kind, source) for name, kind in TOPICS.items() if f'"{name}"' in said]
    begin.append(_create_group("$g0"))
    begin.append(_create_group("$o0", consumeMessageOrderly=True, retryMaxTimes=source.choice([0, 1, 16])))
    begin.append(_create_group("$b0", retryMaxTimes=0))
    for connection in {step.connection for step in steps} & set(range(len(GROUPS))):
        begin += _registration(source, connection)
    return begin + steps


# -- building steps


def _step(method: str, content: Content, connection: int = 0, **more: Any) -> Step:
    name = more.pop("name", method)
    return Step(connection, name, {"method": method, "message": content, **more})


def _admin(request: str, code: int, fields: dict[str, str], **more: Any) -> Step:
    return Step(0, request, {"code": code, "fields": fields, **more})


def _pause(seconds: float) -> Step:
    return Step(0, "pause", {"pause": seconds})


def _create_topic(name: str, kind: str, source: random.Random) -> Step:
    """A topic for messages without order has one queue: each broker chooses among several at random."""
    count = source.choice(["1", "4"]) if kind == "FIFO" else "1"
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": count,
        "writeQueueNums": count,
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type={kind}",
    }
    return _admin("create topic", 17, fields)


def _create_group(name: str, **changes: Any) -> Step:
    return _admin("create group", 200, {}, body={"groupName": name, **changes})


def _connection(source: random.Random) -> int:
    """Clients that are registered as consumers, each of one of `GROUPS`."""
    return source.randrange(len(GROUPS))


def _newcomer(source: random.Random) -> int:
    """Clients that are not registered at first. They do not receive."""
    return source.choice([3, 3, 4])


def _topic(source: random.Random, odd: float = 0.1) -> Content:
    name = source.choice(ODD_TOPICS) if source.random() < odd else source.choice([*TOPICS, "$n0"])
    found: Content = {"name": name}
    if source.random() < 0.05:
        found["resource_namespace"] = "ns"
    return found


def _group(source: random.Random, odd: float = 0.1) -> Content:
    return {"name": source.choice(ODD_GROUPS) if source.random() < odd else source.choice(GROUPS)}


def _metadata(source: random.Random) -> Content:
    """Changes of the metadata, for one request in twelve."""
    if source.random() > 0.08:
        return {}
    changes: list[dict[str, str | None]] = [
        {"x-mq-client-id": None},
        {"x-mq-client-id": ""},
        {"x-mq-client-id": " "},
        {"x-mq-client-version": None},
        {"x-mq-client-version": "odd"},
        {"x-mq-protocol": None},
        {"x-mq-namespace": "ns"},
        {"x-mq-date-time": None},
        {"authorization": "odd"},
    ]
    return {"metadata": source.choice(changes)}


# -- routes


def _route_of_shape(source: random.Random) -> list[Step]:
    fields = {
        "topic": f"$r{source.randrange(10**6)}",
        "defaultTopic": "TBW102",
        "readQueueNums": source.choice(["0", "1", "2", "5"]),
        "writeQueueNums": source.choice(["0", "1", "2", "5"]),
        "perm": source.choice(["0", "2", "4", "6", "7"]),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": source.choice(["true", "false"]),
    }
    if kind := source.choice(["", "NORMAL", "FIFO", "UNSPECIFIED", "MIXED"]):
        fields["attributes"] = f"+message.type={kind}"
    topic = {"name": fields["topic"]}
    route = _step("QueryRoute", {"topic": topic, **_endpoints(source)})
    assignment = _step("QueryAssignment", {"topic": topic, "group": _group(source, 0), **_endpoints(source)})
    return [_admin("create topic", 17, fields), route, assignment]


def _endpoints(source: random.Random) -> Content:
    choices: list[Content] = [
        {},
        {"endpoints": {"scheme": "IPv4", "addresses": [{"host": "127.0.0.1", "port": 8081}]}},
        {"endpoints": {"scheme": "DOMAIN_NAME", "addresses": [{"host": "localhost", "port": 8081}]}},
        {"endpoints": {"scheme": "IPv6", "addresses": [{"host": "::1", "port": 1}, {"host": "::2", "port": 2}]}},
    ]
    return source.choice(choices)


def _route(source: random.Random) -> list[Step]:
    content = {"topic": _topic(source, 0.4), **_endpoints(source)}
    return [_step("QueryRoute", content, _connection(source), **_metadata(source))]


def _assignment(source: random.Random) -> list[Step]:
    content = {"topic": _topic(source, 0.3), "group": _group(source, 0.3), **_endpoints(source)}
    return [_step("QueryAssignment", content, _connection(source), **_metadata(source))]


# -- clients


def _registration(source: random.Random, connection: int) -> list[Step]:
    """Settings of a consumer, as a client begins."""
    group = GROUPS[connection]
    entries = [{"topic": {"name": name}, "expression": {"type": "TAG", "expression": "*"}} for name in TOPICS]
    kind = source.choice(["PUSH_CONSUMER", "SIMPLE_CONSUMER"])
    settings = {"client_type": kind, "subscription": {"group": {"name": group}, "subscriptions": entries}}
    return [
        _step("Telemetry", {"settings": {**settings, "request_timeout": "3s"}}, connection),
        _step("Heartbeat", {"group": {"name": group}, "client_type": kind}, connection),
    ]


def _subscription(source: random.Random, topic: Content) -> Content:
    return {"topic": topic, "expression": _expression(source)}


def _expression(source: random.Random) -> Content:
    choices: list[Content] = [
        {"type": "TAG", "expression": "*"},
        {"type": "TAG", "expression": "*"},
        {"type": "TAG", "expression": "red"},
        {"type": "TAG", "expression": "red||blue"},
        {"type": "SQL", "expression": "TAGS = 'red'"},
        {"type": "SQL", "expression": "own IS NOT NULL"},
    ]
    odd: list[Content] = [
        {},
        {"type": "TAG"},
        {"type": "TAG", "expression": ""},
        {"type": "TAG", "expression": " "},
        {"type": "TAG", "expression": "||"},
        {"type": "TAG", "expression": "red||"},
        {"type": "SQL"},
        {"type": "SQL", "expression": " "},
        {"type": "SQL", "expression": "a >"},
        {"type": "SQL", "expression": "*"},
        {"expression": "red"},
        {"expression": "*"},
    ]
    return source.choice(odd) if source.random() < 0.15 else source.choice(choices)


def _telemetry(source: random.Random) -> list[Step]:
    settings: Content = {}
    which = source.random()
    # Settings of consumers without a subscription are removed by the genuine proxy a few seconds later.
    kinds = CLIENT_TYPES if which >= 0.45 else ("PRODUCER", "PRODUCER", "PULL_CONSUMER", "CLIENT_TYPE_UNSPECIFIED")
    if source.random() < 0.9:
        settings["client_type"] = source.choice(kinds)
    if source.random() < 0.5:
        settings["request_timeout"] = source.choice(["3s", "0s", "-1s", "3600s"])
    if source.random() < 0.2:
        settings["backoff_policy"] = {"max_attempts": 5, "exponential_backoff": {"initial": "1s", "multiplier": 3}}
    if source.random() < 0.3:
        language = source.choice(["JAVA", "PYTHON", "GOLANG", "LANGUAGE_UNSPECIFIED"])
        settings["user_agent"] = {"language": language, "version": "5.0.3", "hostname": "h"}
    if source.random() < 0.2:
        settings["access_point"] = {"scheme": "IPv4", "addresses": [{"host": "127.0.0.1", "port": 8081}]}
    if source.random() < 0.2:
        settings["metric"] = {"on": True}
    if which < 0.45:
        topics = [_topic(source) for _ in range(source.randrange(3))]
        settings["publishing"] = {
            "topics": topics,
            "max_body_size": source.choice([0, 5]),
            "validate_message_type": False,
        }
    elif which < 0.9:
        entries = [_subscription(source, _topic(source)) for _ in range(source.randrange(3))]
        subscription: Content = {"subscriptions": entries, "fifo": source.random() < 0.3}
        if source.random() < 0.9:
            subscription["group"] = _group(source, 0.3)
        if source.random() < 0.3:
            subscription |= {"receive_batch_size": source.choice([0, 64, -1]), "long_polling_timeout": "1s"}
        settings["subscription"] = subscription
    return [_step("Telemetry", {"settings": settings}, _newcomer(source), **_metadata(source))]


def _heartbeat(source: random.Random) -> list[Step]:
    content: Content = {"client_type": source.choice(CLIENT_TYPES)}
    if source.random() < 0.8:
        content["group"] = _group(source, 0.2)
    return [_step("Heartbeat", content, source.choice([0, 1, 3, 3, 4]), **_metadata(source))]


def _termination(source: random.Random) -> list[Step]:
    content = {"group": _group(source, 0.2)} if source.random() < 0.8 else {}
    return [_step("NotifyClientTermination", content, _newcomer(source), **_metadata(source))]


# -- sending


def _message(source: random.Random, topic: str, kind: str | None = None) -> Content:
    kind = kind or TOPICS.get(topic, "NORMAL")
    system: Content = {
        "message_id": f"$m{source.randrange(10**9)}",
        "message_type": kind,
        "born_host": "there",
        "born_timestamp": "2026-01-01T00:00:00.123Z",
        "body_encoding": "IDENTITY",
    }
    if kind == "FIFO":
        system["message_group"] = source.choice(["a", "a", "b"])
    if kind == "DELAY":
        system["delivery_timestamp"] = source.choice(["<now+600000>", "<now+1000>", "<now-1000>"])
    if source.random() < 0.4:
        system["tag"] = source.choice(["red", "blue"])
    if source.random() < 0.3:
        system["keys"] = source.choice([["k"], ["k", "l"], ["k l"]])
    found: Content = {"topic": {"name": topic}, "body": "aGVsbG8=", "system_properties": system}
    if source.random() < 0.3:
        found["user_properties"] = {"own": source.choice(["1", "x", ""])}
    return found


def _send_to(source: random.Random, topic: str, kind: str | None = None) -> Step:
    return _step("SendMessage", {"messages": [_message(source, topic, kind)]})


def _send(source: random.Random) -> list[Step]:
    topic = source.choice(list(TOPICS))
    kind = source.choice(list(TOPICS.values())) if source.random() < 0.15 else None
    return [_send_to(source, topic, kind)]


def _send_odd(source: random.Random) -> list[Step]:
    """One or two fields of a message are odd."""
    content = _message(source, source.choice(list(TOPICS)))
    for _ in range(source.choice([1, 1, 2])):
        source.choice(ODDITIES)(source, content)
    return [_step("SendMessage", {"messages": [content]}, _connection(source), **_metadata(source))]


def _set_system(name: str, *values: Any) -> Callable[[random.Random, Content], None]:
    def change(source: random.Random, content: Content) -> None:
        value = source.choice(values)
        if value is None:
            content["system_properties"].pop(name, None)
        else:
            content["system_properties"][name] = value

    return change


def _set_delivery(source: random.Random, content: Content) -> None:
    times = [None, "<now+86000000>", "<now+300000000>", "<now-1000>", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"]
    if content["system_properties"]["message_type"] != "TRANSACTION":
        _set_system("delivery_timestamp", *times)(source, content)


def _set_body(source: random.Random, content: Content) -> None:
    content["body"] = source.choice(["", "<body 1>", "<body 4194304>", "<body 4194305>", "<body 70000>"])


def _set_topic(source: random.Random, content: Content) -> None:
    content["topic"] = _topic(source, 0.8)


def _set_properties(source: random.Random, content: Content) -> None:
    reserved = ["TAGS", "KEYS", "DELAY", "UNIQ_KEY", "TRAN_MSG", "__SHARDINGKEY", "MIN_OFFSET", "_SYS_X", "__x", "id"]
    choices: list[Content] = [
        {source.choice(ODD_TEXTS): "v"},
        {"k": source.choice(ODD_TEXTS)},
        {source.choice(reserved): "1"},
        {f"k{number}": "v" for number in range(source.choice([127, 128, 129]))},
        {"k": f"<text {source.choice([16000, 16383, 16384, 16385])}>"},
    ]
    content["user_properties"] = source.choice(choices)


def _set_digest(source: random.Random, content: Content) -> None:
    kind = source.choice(["DIGEST_TYPE_UNSPECIFIED", "CRC32", "MD5", "SHA1"])
    sums = ["", "5d41402abc4b2a76b9719d911017c592", "3610A686", "AAF4C61DDCC5E8A2DABEDE0F3B482CD9AEA9434D", "0"]
    content["system_properties"]["body_digest"] = {"type": kind, "checksum": source.choice(sums)}


ODDITIES: tuple[Callable[[random.Random, Content], None], ...] = (
    _set_body,
    _set_topic,
    _set_properties,
    _set_system("message_id", None, "", " ", "a b", "é", "\n", "<text 300>"),
    _set_system("tag", *ODD_TEXTS),
    _set_system("keys", [], *([text] for text in ODD_TEXTS), ["a", ""], ["<text 20000>"]),
    _set_system("message_group", None, *ODD_TEXTS, "<text 63>", "<text 64>"),
    _set_system("body_encoding", "GZIP", "ENCODING_UNSPECIFIED"),
    _set_system("message_type", "MESSAGE_TYPE_UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"),
    _set_system("born_timestamp", None, "0001-01-01T00:00:00Z", "1960-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    _set_system("born_host", None, "", " ", "a b"),
    _set_delivery,
    _set_system("orphaned_transaction_recovery_duration", "0s", "-1s", "3600s", "3601s", "1.5s"),
    _set_system("delivery_attempt", 0, 1, 3, -1),
    _set_system("trace_context", "", "tc", "a\nb", " "),
    _set_system("queue_id", -1, 0, 1, 99),
    _set_system("invisible_duration", "1s", "-1s"),
    _set_system("receipt_handle", "", "odd"),
    _set_system("store_host", "", "odd"),
)


def _send_several(source: random.Random) -> list[Step]:
    topic = source.choice(["$n0", "$n0", "$d0", "$x0"])
    messages = [_message(source, topic) for _ in range(source.choice([0, 2, 2, 3]))]
    if messages and source.random() < 0.4:
        source.choice((_set_topic, _set_properties, _set_body))(source, messages[-1])
    return [_step("SendMessage", {"messages": messages}, several=True)]


def _send_without_topic(source: random.Random) -> list[Step]:
    content = source.choice([{}, {"messages": [{}]}, {"messages": [{"body": "aGVsbG8="}]}])
    return [_step("SendMessage", content)]


# -- receiving


def _receiving(source: random.Random, topic: str, connection: int) -> Content:
    content: Content = {
        "group": {"name": GROUPS[connection]},
        "message_queue": {"topic": {"name": topic}, "id": -1, "broker": {"name": "<broker>"}},
        "filter_expression": {"type": "TAG", "expression": "*"},
        "batch_size": 32,
        "long_polling_timeout": "6s",
    }
    if source.random() < 0.2:
        content["auto_renew"] = True
    if source.random() < 0.9 or "auto_renew" not in content:
        content["invisible_duration"] = source.choice(["30s", "60s", "43200s"])
    return content


def _receive(source: random.Random) -> list[Step]:
    """Sends, and then receives what there is."""
    topic, connection = source.choice([("$n0", 0), ("$n0", 2), ("$f0", 1), ("$f0", 0)])
    sent = [_send_to(source, topic) for _ in range(source.choice([1, 1, 2, 3]))]
    content = _receiving(source, topic, connection)
    if source.random() < 0.5:
        content["filter_expression"] = _expression(source)
    if source.random() < 0.2:
        content["attempt_id"] = source.choice(["one", "two", ""])
    if source.random() < 0.2:
        content["message_queue"]["id"] = source.choice([0, 1, 99, -2])
    return [*sent, _step("ReceiveMessage", content, connection)]


def _receive_odd(source: random.Random) -> list[Step]:
    content = _receiving(source, "$n0", 0)
    choices: list[Content] = [
        {"invisible_duration": source.choice(["0s", "-1s", "9.999s", "43201s", "86400s"]), "auto_renew": False},
        {"batch_size": source.choice([1, 33, 1000])},
        {"message_queue": {"topic": _topic(source, 1), "id": 0}},
        {"message_queue": {"topic": {"name": "$n0"}, "broker": {"name": source.choice(["", "odd"])}}},
        {"message_queue": {}},
        {"group": {"name": source.choice(["", " ", "a b", "CID_RMQ_SYS_x"])}},
        {"filter_expression": _expression(source)},
        {"long_polling_timeout": source.choice(["0s", "-1s", "1s", "30s"])},
    ]
    for _ in range(source.choice([1, 1, 2])):
        content |= source.choice(choices)
    steps = [_send_to(source, "$n0")] if source.random() < 0.8 else []
    return [*steps, _step("ReceiveMessage", content, **_metadata(source))]


def _receive_meanwhile(source: random.Random) -> list[Step]:
    """A request that waits gets the message that is sent meanwhile."""
    topic, connection = source.choice([("$n0", 2), ("$f0", 1)])
    content = _receiving(source, topic, connection)
    send = {"method": "SendMessage", "message": {"messages": [_message(source, topic)]}}
    return [_step("ReceiveMessage", content, connection, name="receive meanwhile", meanwhile=send)]


ODD_RECEIPTS = ("none", "", "1 2 3", "0 0 60000 0 0 broker-a 0 77")


def _received(source: random.Random) -> tuple[list[Step], int, Content]:
    """Messages that were received right before, over the returned connection, and what they belong to."""
    topic, connection = source.choice([("$n0", 0), ("$n0", 2), ("$f0", 1)])
    steps = [_send_to(source, topic), _step("ReceiveMessage", _receiving(source, topic, connection), connection)]
    return steps, connection, {"group": {"name": GROUPS[connection]}, "topic": {"name": topic}}


def _of_any(source: random.Random) -> Content:
    return {"group": _group(source, 0.2), "topic": _topic(source, 0.2)}


def _ack(source: random.Random) -> list[Step]:
    steps, connection, of = _received(source)
    handles = source.choice([["-1"], ["-1"], ["-1", "-1"], ["-1", "-2"], []])
    entries = [{"message_id": source.choice(["id", ""]), "receipt_handle": f"<handle {each}>"} for each in handles]
    if source.random() < 0.2:
        entries.append({"message_id": "id", "receipt_handle": source.choice(ODD_RECEIPTS)})
    ack = _step("AckMessage", {**of, "entries": entries}, connection, **_metadata(source))
    return [*steps, ack, ack] if source.random() < 0.2 else [*steps, ack]


def _acknowledged_one_by_one(source: random.Random) -> list[Step]:
    """One of several messages is received and acknowledged, or not; then the others are received."""
    topic, connection = source.choice([("$n0", 0), ("$n0", 2), ("$f0", 1)])
    messages = [_message(source, topic) for _ in range(source.choice([2, 3]))]
    for message in messages:
        if topic == "$f0":  # of several queues, each broker would choose one at random
            message["system_properties"]["message_group"] = "a"
    one = {**_receiving(source, topic, connection), "batch_size": 1}
    owner = {"group": {"name": GROUPS[connection]}, "topic": {"name": topic}}
    entry = {"message_id": "id", "receipt_handle": "<handle -1>"}
    steps = [_step("SendMessage", {"messages": [message]}) for message in messages]
    steps.append(_step("ReceiveMessage", one, connection))
    if source.random() < 0.7:
        steps.append(_step("AckMessage", {**owner, "entries": [entry]}, connection))
    return [*steps, _step("ReceiveMessage", {**one, "batch_size": source.choice([1, 32])}, connection)]


def _change(source: random.Random) -> list[Step]:
    steps, connection, of = _received(source)
    durations = ["30s", "60s", "43200s", "43201s", "-1s", "30.5s"]
    content = {
        **of,
        "receipt_handle": source.choice(ODD_RECEIPTS) if source.random() < 0.2 else "<handle -1>",
        "message_id": "id",
        "invisible_duration": source.choice(durations),
    }
    return [*steps, _step("ChangeInvisibleDuration", content, connection, **_metadata(source))]


def _forward(source: random.Random) -> list[Step]:
    steps, connection, of = _received(source)
    content = {
        **of,
        "receipt_handle": source.choice(ODD_RECEIPTS) if source.random() < 0.2 else "<handle -1>",
        "message_id": "id",
        "delivery_attempt": source.choice([0, 1, 17]),
        "max_delivery_attempts": source.choice([0, 1, 16]),
    }
    dead = _admin("max offset", 30, {"topic": f"%DLQ%{GROUPS[connection]}", "queueId": "0"})
    forward = _step("ForwardMessageToDeadLetterQueue", content, connection, **_metadata(source))
    return [*steps, forward, _pause(0.1), dead]


def _redelivery(source: random.Random) -> list[Step]:
    """A message is returned early, and delivered again."""
    topic, connection = source.choice([("$n0", 0), ("$f0", 1), ("$n0", 2)])
    owner = {"group": {"name": GROUPS[connection]}, "topic": {"name": topic}}
    content = {**_receiving(source, topic, connection), "auto_renew": False, "invisible_duration": "30s"}
    change = {**owner, "receipt_handle": "<handle -1>", "invisible_duration": "1s"}
    again = _step("ReceiveMessage", content, connection, patience=8)
    return [
        _send_to(source, topic),
        _step("ReceiveMessage", content, connection),
        _step("ChangeInvisibleDuration", change, connection),
        _pause(3.5),
        again,
    ]


# -- transactions, delays


def _end(source: random.Random, name: str = "$x0") -> Step:
    content = {
        "topic": {"name": name} if source.random() < 0.9 else _topic(source, 0.5),
        "message_id": source.choice(["id", ""]),
        "transaction_id": "<transaction -1>" if source.random() < 0.9 else source.choice(ODD_TEXTS),
        "resolution": source.choice(["COMMIT", "ROLLBACK", "COMMIT", "TRANSACTION_RESOLUTION_UNSPECIFIED"]),
        "source": source.choice(["SOURCE_CLIENT", "SOURCE_SERVER_CHECK", "SOURCE_UNSPECIFIED"]),
    }
    return _step("EndTransaction", content, _connection(source), **_metadata(source))


def _transaction(source: random.Random) -> list[Step]:
    content = _receiving(source, "$x0", 0)
    steps = [_send_to(source, "$x0"), _end(source)]
    return [*steps, _step("ReceiveMessage", content)] if source.random() < 0.2 else steps


def _check_back(source: random.Random) -> list[Step]:
    """The broker asks the producer about an undecided transaction."""
    settings = {"client_type": "PRODUCER", "publishing": {"topics": [{"name": "$x0"}]}}
    message = _message(source, "$x0")
    message["system_properties"]["born_timestamp"] = "<now+0>"  # an old half message would be given up
    message["system_properties"]["orphaned_transaction_recovery_duration"] = "1s"
    return [
        _step("Telemetry", {"settings": settings}),
        _step("SendMessage", {"messages": [message]}),
        Step(0, "check-back", {"command": 8}),
        _end(source),
    ]


def _recall(source: random.Random) -> list[Step]:
    odd = ["", "odd", "dg"]
    handle = source.choice(odd) if source.random() < 0.2 else f"<recall {source.randrange(3)}>"
    topic = {"name": "$d0"} if source.random() < 0.8 else _topic(source, 0.5)
    recall = _step("RecallMessage", {"topic": topic, "recall_handle": handle}, **_metadata(source))
    return [_send_to(source, "$d0"), recall]


def _delay(source: random.Random) -> list[Step]:
    message = _message(source, "$d0")
    message["system_properties"]["delivery_timestamp"] = source.choice(["<now+2000>", "<now+1500>", "<now-5000>"])
    receive = _step("ReceiveMessage", _receiving(source, "$d0", 0), patience=6)
    return [_step("SendMessage", {"messages": [message]}), receive]


# -- others


def _not_served(source: random.Random) -> list[Step]:
    queue = {"topic": {"name": "$n0"}, "id": 0, "broker": {"name": "<broker>"}}
    owner = {"group": {"name": "$g0"}, "message_queue": queue}
    choices = [
        _step("PullMessage", {**owner, "offset": 0, "batch_size": 1}),
        _step("UpdateOffset", {**owner, "offset": 0}),
        _step("GetOffset", owner),
        _step("QueryOffset", {"message_queue": queue, "query_offset_policy": "END"}),
        _step("Odd", {}, raw=""),
        _step("SendMessage", {}, raw="ffffff", name="garbage"),
        _step("AckMessage", {}, raw="0a05", name="garbage"),
    ]
    return [source.choice(choices)]


def _seen_by_remoting(source: random.Random) -> list[Step]:
    group = source.choice(GROUPS)
    choices = [
        _admin("consumer list", 38, {"consumerGroup": group}),
        _admin("consumer offset", 14, {"consumerGroup": group, "topic": "$n0", "queueId": "0"}),
        _admin("topics by consumer", 343, {"group": group}),
    ]
    return [source.choice(choices)]


def _of_another(source: random.Random) -> list[Step]:
    """A receipt with names that it does not belong to."""
    steps, connection, _ = _received(source)
    of = {**_of_any(source), "receipt_handle": "<handle -1>", "message_id": "id"}
    choices = [
        _step("ForwardMessageToDeadLetterQueue", of, connection, mismatch=True),
        _step("ChangeInvisibleDuration", {**of, "invisible_duration": "60s"}, connection, mismatch=True),
    ]
    return [*steps, source.choice(choices)]


def _longer_delay(source: random.Random) -> list[Step]:
    message = _message(source, "$d0")
    message["system_properties"]["delivery_timestamp"] = "<now+87000000>"
    return [_step("SendMessage", {"messages": [message]}, long=True)]


def _changed_twice(source: random.Random) -> list[Step]:
    steps, connection, of = _received(source)
    change = {**of, "receipt_handle": "<handle -1>", "message_id": "id", "invisible_duration": "60s"}
    again = _step("ChangeInvisibleDuration", {**change, "receipt_handle": "<handle -2>"}, connection, again=True)
    return [*steps, _step("ChangeInvisibleDuration", change, connection), again]


def _several_in_order(source: random.Random) -> list[Step]:
    messages = [_message(source, "$f0") for _ in range(2)]
    return [_step("SendMessage", {"messages": messages}, several=True)]


def _new_kinds_of_topic(source: random.Random) -> list[Step]:
    step = _create_topic("$k0", source.choice(["LITE", "PRIORITY"]), source)
    return [Step(0, "create new kind", step.arguments)]


def _wrong_digest(source: random.Random) -> list[Step]:
    content = _message(source, "$n0")
    _set_digest(source, content)
    return [_step("SendMessage", {"messages": [content]}, digest=True)]


def _batch_of_none(source: random.Random) -> list[Step]:
    content = {**_receiving(source, "$n0", 0), "batch_size": source.choice([0, -1])}
    return [_send_to(source, "$n0"), _step("ReceiveMessage", content, name="receive none")]


def _without_language(source: random.Random) -> list[Step]:
    settings = {"client_type": "PRODUCER", "publishing": {"topics": [{"name": "$n0"}]}}
    language = {"x-mq-language": source.choice([None, "odd"])}
    return [_step("Telemetry", {"settings": settings}, 3, metadata=language, name="without language")]


def _new_kinds_of_client(source: random.Random) -> list[Step]:
    kind = source.choice(["LITE_PUSH_CONSUMER", "LITE_SIMPLE_CONSUMER"])
    settings = {"client_type": kind, "subscription": {"group": {"name": "$g0"}, "subscriptions": []}}
    return [_step("Telemetry", {"settings": settings}, 3, name="new kind of client")]


def _not_registered(source: random.Random) -> list[Step]:
    content = _receiving(source, "$n0", 0)
    return [_send_to(source, "$n0"), _step("ReceiveMessage", content, 3, name="receive unregistered")]


LAST: tuple[Callable[[random.Random], list[Step]], ...] = (
    _longer_delay,
    _of_another,
    _changed_twice,
    _several_in_order,
    _new_kinds_of_topic,
    _new_kinds_of_client,
    _wrong_digest,
    _batch_of_none,
    _without_language,
    _not_registered,
)

REQUESTS: tuple[tuple[Callable[[random.Random], list[Step]], float], ...] = (
    (_route, 3),
    (_route_of_shape, 2),
    (_assignment, 3),
    (_telemetry, 5),
    (_heartbeat, 4),
    (_termination, 2),
    (_send, 4),
    (_send_odd, 10),
    (_send_several, 3),
    (_send_without_topic, 0.5),
    (_receive, 4),
    (_receive_odd, 3),
    (_receive_meanwhile, 0.3),
    (_ack, 4),
    (_acknowledged_one_by_one, 1),
    (_change, 3),
    (_forward, 2),
    (_redelivery, 0.3),
    (_transaction, 3),
    (_check_back, 0.2),
    (_recall, 2),
    (_delay, 0.3),
    (_not_served, 1),
    (_seen_by_remoting, 0.5),
)
