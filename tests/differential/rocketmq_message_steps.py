"""Generated remoting requests about messages: sends, pulls, pops, transactions, delays, queries."""

from __future__ import annotations

import json
import random

from differential.rocketmq_values import (
    ONE_QUEUE,
    READ_ONLY,
    Fields,
    Kind,
    Story,
    asked,
    flag,
    group,
    offset,
    pause,
    queue,
    request,
    topic,
)
from differential.sequences import Step


def properties(values: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


def _sending(source: random.Random, name: str, more: dict[str, str] | None = None) -> Fields:
    values: dict[str, str] = {}
    if source.random() < 0.5:
        values["TAGS"] = source.choice(["red", "blue", ""])
    if source.random() < 0.3:
        values["KEYS"] = source.choice(["k1", "k1 k2", " "])
    if source.random() < 0.2:
        values["UNIQ_KEY"] = f"$u{source.randrange(3)}"
    if source.random() < 0.1:
        values[source.choice(["MIN_OFFSET", "WAIT", "INNER_NUM", "own"])] = source.choice(["1", "0", "x"])
    return {
        "a": "$p0",
        "b": name,
        "c": source.choice(["TBW102", "TBW102", "none"]),
        "d": source.choice(["4", "1"]),
        "e": source.choice(["0", "0", "-1"] if name == ONE_QUEUE else ["0", "0", "0", "1", "3", "4", "9"]),
        "f": source.choice(["0", "0", "0", "1"]),
        "g": "<now>",
        "h": source.choice(["0", "0", "5"]),
        "i": properties(values | (more or {})),
        "j": source.choice(["0", "0", "1"]),
        "k": "false",
        "m": "false",
    }


def send(source: random.Random, connection: int) -> Step:
    more = {}
    if source.random() < 0.08:  # due long after the sequence
        late = [
            {"DELAY": source.choice(["17", "18", "99"])},
            {"TIMER_DELAY_SEC": "3600"},
            {"TIMER_DELAY_MS": "3600000"},
            {"TIMER_DELIVER_MS": "<now+3600000>"},
            {"TIMER_DELAY_MS": "999999999999"},
        ]
        more = source.choice(late)
    fields = _sending(source, topic(source), more)
    return request(connection, "send", 310, fields, body=source.choice(["", "a", "b" * 100, "é"]))


def send_oddly(source: random.Random, connection: int) -> Step:
    more = [
        {"DELAY": source.choice(["0", "-1", "abc", ""])},
        {"TIMER_DELAY_MS": source.choice(["abc", ""])},
        {"TIMER_DELIVER_MS": source.choice(["abc", ""])},
        {"TRAN_MSG": "TRUE"},
        {"RECONSUME_TIME": "3"},
        {"__STARTDELIVERTIME": "<now+3600000>"},
    ]
    fields = _sending(source, topic(source), source.choice(more))
    return request(connection, "send oddly", 310, fields, body="a")


_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "m": "batch",
}


def send_named(source: random.Random, connection: int) -> Step:
    """The older send, whose header has the long names."""
    fields = _sending(source, topic(source))
    fields["e"] = source.choice(["0", "0", "1", "9"])  # of a random queue the offset would differ
    named = {_NAMES[name]: value for name, value in fields.items()}
    return request(connection, "send named", 10, named, body=source.choice(["", "a", "b" * 100]))


def send_batch(source: random.Random, connection: int) -> Step:
    outer = source.choice(["", "", properties({"TAGS": "blue"}), properties({"own": "1"})])
    fields = {**_sending(source, topic(source)), "m": "true", "i": outer}
    bodies = [source.choice(["one", "two"]) for _ in range(source.randrange(4))]
    texts = [properties({"TAGS": "red"}), properties({"KEYS": "k1"}), "", properties({"UNIQ_KEY": "$u7"})]
    return request(connection, "send batch", 320, fields, bodies=bodies, properties=source.choice(texts))


def send_empty_batch(source: random.Random, connection: int) -> Step:
    step = send_batch(source, connection)
    return Step(connection, "send batch", {**step.arguments, "bodies": ["", "one"]})


def send_read_only(source: random.Random, connection: int) -> Step:
    return request(connection, "send read only", 310, _sending(source, READ_ONLY), body="a")


def _filter(source: random.Random) -> Fields:
    if source.random() < 0.7:
        return {"subscription": source.choice(["*", "*", "red", "red || blue", "", "none"]), "expressionType": "TAG"}
    expressions = ["TAGS = 'red'", "TAGS IS NOT NULL", "own > 0", "own IS NULL AND TAGS IN ('red', 'blue')"]
    return {"subscription": source.choice(expressions), "expressionType": "SQL92"}


def pull(source: random.Random, connection: int) -> Step:
    fields = {
        "consumerGroup": group(source),
        "topic": source.choice([topic(source)] * 9 + [READ_ONLY]),
        "queueId": queue(source),
        "queueOffset": offset(source),
        "maxMsgNums": source.choice(["32", "1", "2", "0", "-1"]),
        "sysFlag": source.choice(["4", "4", "4", "5", "0", "20", "12", "8"]),
        "commitOffset": source.choice(["0", "2"]),
        "suspendTimeoutMillis": "0",
        "subVersion": source.choice(["0", "1"]),
        **_filter(source),
    }
    return request(connection, "pull", source.choice([11, 11, 361]), fields)


def pull_with_bad_filter(source: random.Random) -> Step:
    step = pull(source, 0)
    kind, text = source.choice([("SQL92", "*"), ("SQL92", "red ||"), ("SQL92", ""), ("odd", "*"), ("odd", "red")])
    fields = {**step.arguments["fields"], "sysFlag": "4", "expressionType": kind, "subscription": text}
    return Step(0, "pull", {**step.arguments, "fields": fields, "bad filter": True})


def pull_and_wait(source: random.Random) -> list[Step]:
    """A pull that waits gets the message that is sent meanwhile."""
    fields = {
        "consumerGroup": "$g9",
        "topic": "$t0",
        "queueId": "2",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "9000",
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
    }
    sent = {**_sending(source, "$t0"), "e": "2"}
    meanwhile = {"code": 310, "fields": sent, "body": "a"}
    return [request(1, "pull and wait", 11, fields, meanwhile=meanwhile)]


# -- POP


def _popping(source: random.Random, name: str, to: str) -> Fields:
    number = source.choice(["-1", "0", "1", "9"]) if name != ONE_QUEUE else source.choice(["-1", "0"])
    return {
        "consumerGroup": to,
        "topic": name,
        "queueId": number,
        # With fewer messages than there are in several queues, each broker would choose the queue at random.
        "maxMsgNums": "32" if number == "-1" and name != ONE_QUEUE else source.choice(["32", "1", "2", "0", "33"]),
        "invisibleTime": source.choice(["60000", "60000", "60000", "0"]),
        "pollTime": "0",
        "bornTime": "<now>",
        "initMode": source.choice(["0", "1"]),
        "expType": "TAG",
        "exp": source.choice(["*", "*", "red"]),
        "order": "false",
    }


def pop(source: random.Random, connection: int) -> Step:
    to = source.choice(["$pop0", "$pop1", group(source)])
    return request(connection, "pop", 200050, _popping(source, topic(source), to))


def pop_in_order(source: random.Random, connection: int) -> Step:
    fields = {**_popping(source, topic(source), "$ordered"), "order": "true", "invisibleTime": "60000"}
    if source.random() < 0.4:
        fields["attemptId"] = source.choice(["one", "two"])
    return request(connection, "pop in order", 200050, fields)


def _pop_group(source: random.Random) -> str:
    return source.choice(["$pop0", "$pop0", "$pop1", "$ordered"])


def peek(source: random.Random, connection: int) -> Step:
    number = source.choice(["0", "1", "9"])
    fields = {
        "consumerGroup": _pop_group(source),
        "topic": topic(source),
        "queueId": number,
        "maxMsgNums": source.choice(["32", "1", "0"]),
    }
    return request(connection, "peek", 200052, fields)


def ack(source: random.Random, connection: int) -> Step:
    return request(connection, "ack", 200051, {}, handle=source.randrange(4))


def ack_batch(source: random.Random, connection: int) -> Step:
    numbers = source.sample(range(4), source.choice([1, 1, 2, 3]))
    return request(connection, "ack batch", 200151, {}, acks=numbers)


def change_invisible(source: random.Random, connection: int) -> Step:
    fields = {"invisibleTime": source.choice(["60000", "60000", "30000"])}
    return request(connection, "change invisible", 200053, fields, handle=source.randrange(4))


def negative_time(source: random.Random, connection: int) -> Step:
    return request(connection, "negative time", 200053, {"invisibleTime": "-1"}, handle=0)


def odd_receipt(source: random.Random, connection: int) -> Step:
    fields = {
        "consumerGroup": _pop_group(source),
        "topic": topic(source),
        "queueId": queue(source),
        "extraInfo": source.choice(["0 0 60000 0 0 none 0 0", "1 2 3", "", "a b c d e f g h"]),
        "offset": source.choice(["0", "1", "77"]),
    }
    if source.random() < 0.5:
        return request(connection, "odd receipt", 200051, fields)
    return request(connection, "odd receipt", 200053, {**fields, "invisibleTime": "60000"})


def notification(source: random.Random, connection: int) -> Step:
    fields = {
        "consumerGroup": _pop_group(source),
        "topic": topic(source),
        "queueId": source.choice(["0", "-1", "1", "9"]),
        "pollTime": "0",
        "bornTime": "<now>",
    }
    return request(connection, "notification", 200054, fields)


def polling_info(source: random.Random, connection: int) -> Step:
    fields = {"consumerGroup": _pop_group(source), "topic": topic(source), "queueId": source.choice(["0", "-1", "9"])}
    return request(connection, "polling info", 200055, fields)


def pop_and_return(source: random.Random) -> list[Step]:
    """A popped message is returned early, comes back, and is popped again."""
    sent = {**_sending(source, ONE_QUEUE), "e": "0"}
    popped = {**_popping(source, ONE_QUEUE, "$back"), "queueId": "0", "maxMsgNums": "32", "exp": "*", "initMode": "0"}
    popped["invisibleTime"] = "60000"
    change = {"invisibleTime": "1000"}
    return [
        request(0, "send", 310, sent, body="a"),
        request(0, "pop", 200050, popped),
        request(0, "change invisible", 200053, change, handle=-1),
        pause(4),
        request(0, "pop again", 200050, popped),
    ]


def pop_and_wait(source: random.Random) -> list[Step]:
    popped = {**_popping(source, "$t0", "$waits"), "queueId": "2", "maxMsgNums": "32", "exp": "*", "initMode": "0"}
    popped |= {"pollTime": "9000", "invisibleTime": "60000"}
    meanwhile = {"code": 310, "fields": {**_sending(source, "$t0"), "e": "2"}, "body": "a"}
    return [request(1, "pop and wait", 200050, popped, meanwhile=meanwhile)]


def notified_and_wait(source: random.Random) -> list[Step]:
    """A notification that waits is answered when a message is sent."""
    fields = {"consumerGroup": "$waits", "topic": "$t0", "queueId": "2", "pollTime": "9000", "bornTime": "<now>"}
    meanwhile = {"code": 310, "fields": {**_sending(source, "$t0"), "e": "2"}, "body": "a"}
    return [request(1, "notification waits", 200054, fields, meanwhile=meanwhile)]


def in_order(source: random.Random) -> list[Step]:
    """Messages popped in order: acknowledged or given another time, then the next pop of the same queue."""
    sent = {**_sending(source, ONE_QUEUE), "e": "0"}
    popped = {**_popping(source, ONE_QUEUE, "$inorder"), "queueId": "0", "exp": "*", "initMode": "0", "order": "true"}
    popped |= {"invisibleTime": "60000", "maxMsgNums": source.choice(["1", "2", "32"])}
    pop = request(0, "pop in order", 200050, popped)
    ended = request(0, "ack", 200051, {}, handle=-1)
    return [*(request(0, "send", 310, sent, body="a") for _ in range(source.randrange(1, 4))), pop, ended, pop]


# -- sent back, transactions, delays


def send_back(source: random.Random, connection: int) -> Step:
    fields = {
        "offset": source.choice(["99999999999", "-1", "<position 0>", "<position 1>", "<position 2>"]),
        "group": group(source),
        "delayLevel": source.choice(["-1", "3", "18"]),
        "originTopic": topic(source),
        "maxReconsumeTimes": source.choice(["16", "0", "1"]),
    }
    return request(connection, "send back", 36, fields)


def half(source: random.Random, connection: int) -> Step:
    fields = _sending(source, topic(source), {"TRAN_MSG": "true", "PGROUP": "$p0"})
    return request(connection, "half", 310, {**fields, "j": source.choice(["0", "4"])}, body="a")


def end_transaction(source: random.Random, connection: int) -> Step:
    number = -1
    fields = {
        "producerGroup": source.choice(["$p0", "$p0", "$p0", "$p1"]),
        "tranStateTableOffset": source.choice([f"<half offset {number}>"] * 4 + ["99999", "-1"]),
        "commitLogOffset": source.choice([f"<half position {number}>"] * 5 + ["-1"]),
        "commitOrRollback": source.choice(["8", "8", "12"]),
        "fromTransactionCheck": source.choice(["false", "false", "true"]),
        "msgId": "id",
        "transactionId": "id",
    }
    return request(connection, "end transaction", 37, fields)


def transaction(source: random.Random) -> list[Step]:
    return [half(source, 0), end_transaction(source, 0), pull(source, 0)]


def decide_again(source: random.Random, connection: int) -> Step:
    return Step(connection, "decide again", end_transaction(source, connection).arguments)


def check_back(source: random.Random) -> list[Step]:
    """The broker asks the producer about an undecided transaction."""
    data = {"clientID": "$c0", "producerDataSet": [{"groupName": "$p0"}], "consumerDataSet": []}
    late = {"TRAN_MSG": "true", "PGROUP": "$p0", "CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}
    return [
        request(0, "heartbeat", 34, {}, body=json.dumps(data)),
        request(0, "half", 310, {**_sending(source, "$t0", late), "e": "0", "j": "4"}, body="a"),
        asked(0, 39),
    ]


def short_delay(source: random.Random) -> list[Step]:
    due = [
        {"DELAY": "1"},
        {"TIMER_DELAY_SEC": "1"},
        {"TIMER_DELAY_MS": "1000"},
        {"TIMER_DELIVER_MS": "<now+1000>"},
        {"TIMER_DELIVER_MS": "<now-5000>"},
        {"TIMER_DELIVER_MS": source.choice(["0", "-1"])},
        {"TIMER_DELAY_MS": "-1"},
    ]
    sent = {**_sending(source, "$t0", source.choice(due)), "e": "0"}
    steps = [request(0, "send", 310, sent, body="a"), pause(4)]
    fields = {**pull(source, 0).arguments["fields"], "topic": "$t0", "queueId": "0", "sysFlag": "4"}
    fields |= {"queueOffset": "0", "subscription": "*", "expressionType": "TAG"}
    return [*steps, request(0, "pull delayed", 11, fields)]


def recall(source: random.Random) -> list[Step]:
    sent = _sending(source, "$t0", {"TIMER_DELIVER_MS": "<now+3600000>", "UNIQ_KEY": "$u9"})
    handle = source.choice(["<recall 0>", "<recall 0>", "odd", ""])
    fields = {"producerGroup": "$p0", "topic": source.choice(["$t0", "$t0", "$t1"]), "recallHandle": handle}
    return [request(0, "send", 310, {**sent, "e": "0"}, body="a"), request(0, "recall", 370, fields)]


# -- queries


def view(source: random.Random, connection: int) -> Step:
    places = ["-1", "99999999999", "abc", "<position 0>", "<position 1>", "<position 2>"]
    return request(connection, "view message", 33, {"offset": source.choice(places)})


def query(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": topic(source),
        "key": source.choice(["k1", "k2", "none", "$u0", "$u1"]),
        "maxNum": source.choice(["32", "1", "0"]),
        "beginTimestamp": "0",
        "endTimestamp": source.choice(["4102444800000", "0"]),
    }
    if source.random() < 0.3:
        fields["_UNIQUE_KEY_QUERY"] = flag(source)
    if source.random() < 0.3:
        fields["indexType"] = source.choice(["T", "T", "K", "U", "odd", ""])
        if fields["indexType"] == "T":
            fields["key"] = source.choice(["red", "blue", "none"])
    return request(connection, "query by key", 12, fields)


KINDS: tuple[tuple[Kind, float], ...] = (
    (send, 8),
    (send_named, 2),
    (send_oddly, 1),
    (send_batch, 3),
    (pull, 8),
    (pop, 5),
    (pop_in_order, 1),
    (peek, 1),
    (ack, 3),
    (ack_batch, 1),
    (change_invisible, 1),
    (notification, 1),
    (polling_info, 0.5),
    (send_back, 1),
    (half, 1),
    (view, 1),
    (query, 1),
)

STORIES: tuple[tuple[Story, float], ...] = (
    (transaction, 3),
    (recall, 2),
    (check_back, 0.3),
    (short_delay, 0.5),
    (pull_and_wait, 0.7),
    (pop_and_wait, 0.7),
    (pop_and_return, 0.3),
    (notified_and_wait, 0.7),
    (in_order, 0.7),
)

LAST: tuple[Kind, ...] = (negative_time, decide_again, send_read_only, send_empty_batch, odd_receipt)
"""Kinds that end a sequence: their explained difference changes what follows."""
