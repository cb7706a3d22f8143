"""Generated sequences of the remoting protocol, for TriMQ and Apache RocketMQ."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.rocketmq_peer import rocketmq_in
from differential.rocketmq_driver import RocketMQDriver
from differential.sequences import MISSING, Difference, Explained, Step
from tools.broker import running

PAGE = "docs/rocketmq.md"


def _is_java_exception(found: Difference) -> bool:
    return (found.path == ".code" and found.theirs == "exception" and found.ours != 0) or (
        found.path == ".fields" and found.theirs == MISSING
    )


def _is_farther(found: Difference) -> bool:
    is_offset = found.step.request == "pull" and found.path == ".fields.nextBeginOffset"
    is_filtered = is_offset and found.step.arguments["fields"].get("subscription") not in ("*", "")
    return is_filtered and MISSING not in (found.ours, found.theirs) and int(found.ours) > int(found.theirs)


EXPLAINED = (
    Explained("java-exception", _is_java_exception),
    Explained("garbled-field", lambda each: "damaged" in each.step.arguments),
    Explained("bad-filter", lambda each: "bad filter" in each.step.arguments),
    Explained("member-subscriptions", lambda each: each.path.startswith(".body.memberSubscriptions")),
    Explained(
        "route-in-cache", lambda each: each.step.request == "query assignment" and each.ours in (MISSING, 0, [], {})
    ),
    Explained("stats-without-subscription", lambda each: each.step.request == "consume stats" and each.ours == MISSING),
    Explained("filtered-messages-skipped", _is_farther),
    Explained("pull-offset", lambda each: each.path.endswith(".pullOffset")),
)

Fields = dict[str, str]

ODD = ("", "-1", "0", "1", "7", "abc", "2147483648", "9223372036854775807", "1.5", "true", "None", " 1")
"""Values for any field."""

TAG_CODES = {"red": 112785, "blue": 3027034}
"""Java's hash codes."""


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[RocketMQDriver, RocketMQDriver]]:
    (folder / "ours").mkdir()
    with (
        running(folder / "ours") as addresses,
        rocketmq_in(folder / "theirs", "async", {"enablePropertyFilter": "true"}) as peer,
    ):
        yield (
            RocketMQDriver("a", addresses["rocketmq_broker"], "broker-trimq", "DefaultCluster"),
            RocketMQDriver("b", f"127.0.0.1:{peer.port}", "broker-a", "DefaultCluster"),
        )


def generate(source: random.Random) -> list[Step]:
    """Creates a topic and a group, sends, and goes on with requests of all kinds. In the last request of one sequence
    in three, a field is missing or odd: what Apache RocketMQ makes of it may change what follows."""
    steps = [_create_topic(source, 0, "$t0"), _create_group(source, 0, "$g0")]
    steps += [_send(source, 0) for _ in range(source.randrange(4))]
    for _ in range(source.randrange(4, 16)):
        kind = source.choices([each for each, _ in REQUESTS], [weight for _, weight in REQUESTS])[0]
        steps.append(kind(source, source.randrange(3)))
    if source.random() < 0.1:
        steps.append(source.choice([_delete_group(source, 0), _pull_with_bad_filter(source)]))
    elif source.random() < 0.3:
        steps[-1] = _damaged(source, steps[-1])
    return steps


def _damaged(source: random.Random, step: Step) -> Step:
    fields = dict(step.arguments["fields"])
    # A name that does not depend on the run is left behind, and is seen by other sequences.
    choice = [name for name, value in fields.items() if "$" not in value]
    if not choice:
        return step
    name = source.choice(choice)
    if source.random() < 0.4:
        del fields[name]
    else:
        fields[name] = source.choice(ODD)
    if fields.get("e") == "-1":  # each broker would choose a queue at random
        fields["e"] = "0"
    return Step(step.connection, step.request, {**step.arguments, "fields": fields, "damaged": name})


def _step(connection: int, request: str, code: int, fields: Fields, **more: object) -> Step:
    return Step(connection, request, {"code": code, "fields": fields, **more})


def _topic(source: random.Random) -> str:
    return source.choice(["$t0", "$t0", "$t0", "$t1", "$t2"])


def _group(source: random.Random) -> str:
    return source.choice(["$g0", "$g0", "$g1", "$g2"])


def _pop_group(source: random.Random) -> str:
    """Groups that only pop: Apache RocketMQ commits their offsets a while after the pop."""
    return source.choice(["$pop0", "$pop1"])


def _queue(source: random.Random) -> str:
    return source.choice(["0", "0", "0", "1", "3", "4", "9", "-1"])


def _offset(source: random.Random) -> str:
    return source.choice(["0", "0", "1", "2", "3", "5", "100", "-1"])


def _create_topic(source: random.Random, connection: int, topic: str | None = None) -> Step:
    usual = topic is not None
    count = "4" if usual else source.choice(["1", "2", "4", "8"])
    fields = {
        "topic": topic or _topic(source),
        "defaultTopic": "TBW102",
        "readQueueNums": count,
        "writeQueueNums": count if usual else source.choice([count, "1", "4", "16"]),
        "perm": "6" if usual else source.choice(["6", "6", "2", "7"]),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": source.choice(["false", "true"]),
    }
    if not usual and source.random() < 0.4:
        attributes = [
            "+message.type=FIFO",
            "+message.type=NORMAL",
            "+message.type=odd",
            "-message.type",
            "+unknown=1",
            "x",
        ]
        fields["attributes"] = source.choice(attributes)
    return _step(connection, "create topic", 17, fields)


def _send(source: random.Random, connection: int) -> Step:
    properties = {}
    if source.random() < 0.5:
        properties["TAGS"] = source.choice(["red", "blue", ""])
    if source.random() < 0.3:
        properties["KEYS"] = source.choice(["k1", "k1 k2", " "])
    if source.random() < 0.1:
        properties[source.choice(["MIN_OFFSET", "WAIT", "INNER_NUM", "own"])] = source.choice(["1", "0", "x"])
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    fields = {
        "a": "$p0",
        "b": _topic(source),
        "c": source.choice(["TBW102", "TBW102", "none"]),
        "d": source.choice(["4", "1"]),
        "e": source.choice(["0", "0", "0", "1", "3", "4", "9"]),
        "f": source.choice(["0", "0", "0", "1"]),
        "g": "<now>",
        "h": source.choice(["0", "0", "5"]),
        "i": text,
        "j": source.choice(["0", "0", "1"]),
        "k": "false",
        "m": "false",
    }
    return _step(connection, "send", 310, fields, body=source.choice(["", "a", "b" * 100, "é"]))


def _send_batch(source: random.Random, connection: int) -> Step:
    fields = {**_send(source, connection).arguments["fields"], "m": "true", "i": ""}
    bodies = [source.choice(["", "one", "two"]) for _ in range(source.randrange(4))]
    return _step(connection, "send batch", 320, fields, bodies=bodies)


def _pull(source: random.Random, connection: int) -> Step:
    flags = source.choice(["4", "4", "4", "5", "0", "20"])
    fields = {
        # The other groups are reset, and TriMQ then ignores the offsets that pulls commit.
        "consumerGroup": "$c0" if flags == "5" else _group(source),
        "topic": _topic(source),
        "queueId": _queue(source),
        "queueOffset": _offset(source),
        "maxMsgNums": source.choice(["32", "1", "2", "0", "-1"]),
        "sysFlag": flags,
        "commitOffset": source.choice(["0", "2"]),
        "suspendTimeoutMillis": "0",
        "subVersion": source.choice(["0", "1"]),
        **_filter(source),
    }
    return _step(connection, "pull", 11, fields)


def _filter(source: random.Random) -> Fields:
    if source.random() < 0.7:
        return {"subscription": source.choice(["*", "*", "red", "red || blue", "", "none"]), "expressionType": "TAG"}
    expressions = ["TAGS = 'red'", "TAGS IS NOT NULL", "own > 0", "own IS NULL AND TAGS IN ('red', 'blue')"]
    return {"subscription": source.choice(expressions), "expressionType": "SQL92"}


def _pull_with_bad_filter(source: random.Random) -> Step:
    step = _pull(source, 0)
    kind, text = source.choice([("SQL92", "*"), ("SQL92", "red ||"), ("SQL92", ""), ("odd", "*"), ("odd", "red")])
    fields = {**step.arguments["fields"], "expressionType": kind, "subscription": text}
    return Step(0, "pull", {**step.arguments, "fields": fields, "bad filter": True})


def _of_queue(request: str, code: int) -> Callable[[random.Random, int], Step]:
    def make(source: random.Random, connection: int) -> Step:
        return _step(connection, request, code, {"topic": _topic(source), "queueId": _queue(source)})

    return make


def _search_offset(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": _topic(source),
        "queueId": _queue(source),
        "timestamp": source.choice(["0", "-1", "4102444800000"]),
    }
    if source.random() < 0.4:
        fields["boundaryType"] = source.choice(["lower", "upper", "LOWER", "odd"])
    return _step(connection, "search offset", 29, fields)


def _get_offset(source: random.Random, connection: int) -> Step:
    fields = {"consumerGroup": _group(source), "topic": _topic(source), "queueId": _queue(source)}
    if source.random() < 0.3:
        fields["setZeroIfNotFound"] = source.choice(["true", "false"])
    return _step(connection, "get consumer offset", 14, fields)


def _commit_offset(source: random.Random, connection: int) -> Step:
    fields = {
        "consumerGroup": _group(source),
        "topic": _topic(source),
        "queueId": _queue(source),
        "commitOffset": _offset(source),
    }
    return _step(connection, "commit consumer offset", 15, fields)


def _create_group(source: random.Random, connection: int, group: str | None = None) -> Step:
    config = {
        "groupName": group or _group(source),
        "consumeEnable": group is not None or source.random() < 0.8,
        "consumeFromMinEnable": source.random() < 0.5,
        "consumeBroadcastEnable": source.random() < 0.5,
        "consumeMessageOrderly": False,
        "retryQueueNums": source.choice([1, 1, 2]),
        "retryMaxTimes": source.choice([16, 3, 0]),
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
    }
    return _step(connection, "create group", 200, {}, body=json.dumps(config))


def _heartbeat(source: random.Random, connection: int) -> Step:
    tags = source.choice([[], ["red"], ["red", "blue"]])
    subscription = {
        "topic": _topic(source),
        "subString": " || ".join(tags) or "*",
        "subVersion": 1,
        "tagsSet": tags,
        "codeSet": [TAG_CODES[tag] for tag in tags],
        "expressionType": "TAG",
        "classFilterMode": False,
    }
    consumer = {
        "groupName": _group(source),
        "consumeType": source.choice(["CONSUME_PASSIVELY", "CONSUME_ACTIVELY"]),
        "messageModel": source.choice(["CLUSTERING", "CLUSTERING", "BROADCASTING"]),
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }
    data = {
        "clientID": f"$c{connection}",
        "producerDataSet": [{"groupName": "$p0"}] if source.random() < 0.5 else [],
        "consumerDataSet": [consumer] if source.random() < 0.8 else [],
    }
    return _step(connection, "heartbeat", 34, {}, body=json.dumps(data))


def _unregister(source: random.Random, connection: int) -> Step:
    fields = {"clientID": f"$c{connection}"}
    if source.random() < 0.8:
        fields["consumerGroup"] = "$g0"
    if source.random() < 0.4:
        fields["producerGroup"] = "$p0"
    return _step(connection, "unregister", 35, fields)


def _of_group(request: str, code: int, field: str = "consumerGroup") -> Callable[[random.Random, int], Step]:
    def make(source: random.Random, connection: int) -> Step:
        return _step(connection, request, code, {field: _group(source)})

    return make


def _of_topic(request: str, code: int) -> Callable[[random.Random, int], Step]:
    def make(source: random.Random, connection: int) -> Step:
        return _step(connection, request, code, {"topic": _topic(source)})

    return make


def _delete_group(source: random.Random, connection: int) -> Step:
    fields = {"groupName": _group(source), "cleanOffset": source.choice(["true", "false"])}
    return _step(connection, "delete group", 207, fields)


def _view(source: random.Random, connection: int) -> Step:
    fields = {"offset": source.choice(["-1", "99999999999", "abc"])}
    return _step(connection, "view message", 33, fields)


def _locks(request: str, code: int) -> Callable[[random.Random, int], Step]:
    def make(source: random.Random, connection: int) -> Step:
        queues = [
            {"topic": _topic(source), "brokerName": "any", "queueId": source.randrange(3)}
            for _ in range(source.randrange(3))
        ]
        data = {"consumerGroup": _group(source), "clientId": f"$c{connection}", "mqSet": queues}
        return _step(connection, request, code, {}, body=json.dumps(data))

    return make


def _reset(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": _topic(source),
        "group": _group(source),
        "timestamp": source.choice(["0", "-1", "4102444800000"]),
        "isForce": source.choice(["true", "false"]),
    }
    return _step(connection, "reset offset", 222, fields)


def _clone(source: random.Random, connection: int) -> Step:
    fields = {"srcGroup": _group(source), "destGroup": _group(source), "topic": _topic(source), "offline": "false"}
    return _step(connection, "clone offsets", 314, fields)


def _consume_stats(source: random.Random, connection: int) -> Step:
    fields = {"consumerGroup": _group(source)}
    if source.random() < 0.6:
        fields["topic"] = _topic(source)
    return _step(connection, "consume stats", 208, fields)


def _pop(source: random.Random, connection: int) -> Step:
    queue = source.choice(["-1", "0", "1", "9"])
    fields = {
        "consumerGroup": _pop_group(source),
        "topic": _topic(source),
        "queueId": queue,
        # With fewer messages than there are, each broker would choose the queue at random.
        "maxMsgNums": "32" if queue == "-1" else source.choice(["32", "1", "0", "33"]),
        "invisibleTime": source.choice(["60000", "60000", "0", "10"]),
        "pollTime": "0",
        "bornTime": "<now>",
        "initMode": source.choice(["0", "1"]),
        "expType": "TAG",
        "exp": source.choice(["*", "*", "red"]),
        "order": "false",
    }
    return _step(connection, "pop", 200050, fields)


def _ack(source: random.Random, connection: int) -> Step:
    fields = {"consumerGroup": _pop_group(source), "topic": _topic(source), "queueId": _queue(source)}
    return _step(connection, "ack", 200051, fields, handle=source.randrange(4))


def _send_back(source: random.Random, connection: int) -> Step:
    fields = {
        "offset": source.choice(["99999999999", "-1"]),
        "group": _group(source),
        "delayLevel": source.choice(["0", "-1", "3"]),
        "originTopic": _topic(source),
        "maxReconsumeTimes": "16",
    }
    return _step(connection, "send back", 36, fields)


def _assignment(source: random.Random, connection: int) -> Step:
    data = {
        "topic": _topic(source),
        "consumerGroup": _group(source),
        "clientId": f"$c{connection}",
        "strategyName": source.choice(["AVG", "AVG_BY_CIRCLE"]),
        "messageModel": source.choice(["CLUSTERING", "BROADCASTING"]),
    }
    return _step(connection, "query assignment", 400, {}, body=json.dumps(data))


def _request_mode(source: random.Random, connection: int) -> Step:
    data = {
        "topic": _topic(source),
        "consumerGroup": _group(source),
        "mode": source.choice(["POP", "PULL"]),
        "popShareQueueNum": source.choice([0, 2, -1]),
    }
    return _step(connection, "set request mode", 401, {}, body=json.dumps(data))


def _forbid(source: random.Random, connection: int) -> Step:
    fields = {"group": "$g0", "topic": "$t9", "readable": source.choice(["true", "false"])}
    return _step(connection, "forbid", 353, fields)


def _unknown(source: random.Random, connection: int) -> Step:
    return _step(connection, "unknown request", source.choice([1, 9, 999, 65000, 200999]), {})


def _query(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": _topic(source),
        "key": source.choice(["k1", "k2", "none"]),
        "maxNum": source.choice(["32", "1", "0"]),
        "beginTimestamp": "0",
        "endTimestamp": source.choice(["4102444800000", "0"]),
    }
    return _step(connection, "query by key", 12, fields)


REQUESTS: tuple[tuple[Callable[[random.Random, int], Step], int], ...] = (
    (_send, 8),
    (_send_batch, 3),
    (_pull, 8),
    (_create_topic, 4),
    (_create_group, 3),
    (_of_queue("max offset", 30), 3),
    (_of_queue("min offset", 31), 2),
    (_of_queue("earliest store time", 32), 1),
    (_search_offset, 3),
    (_get_offset, 4),
    (_commit_offset, 4),
    (_heartbeat, 4),
    (_unregister, 2),
    (_of_group("consumer list", 38), 2),
    (_of_group("consumer connections", 203), 1),
    (_of_group("topics by consumer", 343, "group"), 1),
    (_of_group("group config", 352, "group"), 2),
    (_of_topic("topic config", 351), 2),
    (_of_topic("topic stats", 202), 2),
    (_of_topic("topic consumed by", 300), 2),
    (_of_topic("delete topic", 215), 2),
    (_view, 1),
    (_locks("lock", 41), 2),
    (_locks("unlock", 42), 1),
    (_reset, 3),
    (_clone, 1),
    (_consume_stats, 2),
    (_pop, 4),
    (_ack, 3),
    (_send_back, 1),
    (_assignment, 2),
    (_request_mode, 1),
    (_forbid, 1),
    (_query, 1),
    (_unknown, 1),
)
