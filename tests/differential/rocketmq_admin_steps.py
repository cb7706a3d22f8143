"""Generated remoting requests about topics, groups, offsets, clients and routes."""

from __future__ import annotations

import json
import random

from differential.rocketmq_values import (
    NAME_SERVER,
    ONE_QUEUE,
    READ_ONLY,
    TAG_CODES,
    Kind,
    Story,
    asked,
    flag,
    group,
    of_group,
    of_queue,
    of_topic,
    offset,
    pause,
    queue,
    request,
    topic,
)
from differential.sequences import Step


def create_topic(source: random.Random, connection: int, name: str | None = None) -> Step:
    usual = name is not None
    count = "4" if usual else source.choice(["1", "2", "4", "8"])
    if name == ONE_QUEUE:
        count = "1"
    fields = {
        "topic": name or source.choice(["$t0", "$t1", "$t2"]),
        "defaultTopic": "TBW102",
        "readQueueNums": count,
        "writeQueueNums": count if usual else source.choice([count, "1", "4", "16"]),
        "perm": "6" if usual else source.choice(["6", "6", "2", "7", "4", "0"]),
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
    return request(connection, "create topic", 17, fields)


def create_read_only_topic(source: random.Random) -> Step:
    fields = {**create_topic(source, 0, READ_ONLY).arguments["fields"], "perm": source.choice(["4", "0"])}
    return request(0, "create topic", 17, fields)


def create_group(source: random.Random, connection: int, name: str | None = None) -> Step:
    config = {
        "groupName": name or group(source),
        "consumeEnable": name is not None or source.random() < 0.8,
        "consumeFromMinEnable": source.random() < 0.5,
        "consumeBroadcastEnable": source.random() < 0.5,
        "consumeMessageOrderly": False,
        "retryQueueNums": source.choice([1, 1, 2]),
        "retryMaxTimes": source.choice([16, 3, 0]),
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
    }
    return request(connection, "create group", 200, {}, body=json.dumps(config))


def delete_group(source: random.Random, connection: int) -> Step:
    return request(connection, "delete group", 207, {"groupName": group(source), "cleanOffset": "true"})


def delete_group_only(source: random.Random, connection: int) -> Step:
    return request(connection, "delete group", 207, {"groupName": group(source), "cleanOffset": "false"})


def search_offset(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": topic(source),
        "queueId": queue(source),
        "timestamp": source.choice(["0", "-1", "4102444800000"]),
    }
    if source.random() < 0.4:
        fields["boundaryType"] = source.choice(["lower", "upper", "LOWER", "odd"])
    return request(connection, "search offset", 29, fields)


def get_offset(source: random.Random, connection: int) -> Step:
    fields = {"consumerGroup": group(source), "topic": topic(source), "queueId": queue(source)}
    if source.random() < 0.3:
        fields["setZeroIfNotFound"] = flag(source)
    return request(connection, "get consumer offset", 14, fields)


def commit_offset(source: random.Random, connection: int) -> Step:
    fields = {
        "consumerGroup": group(source),
        "topic": topic(source),
        "queueId": queue(source),
        "commitOffset": offset(source),
    }
    return request(connection, "commit consumer offset", 15, fields)


def reset(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": topic(source),
        "group": group(source),
        "timestamp": source.choice(["0", "-1", "4102444800000"]),
        "isForce": flag(source),
    }
    return request(connection, "reset offset", 222, fields)


def reset_queue(source: random.Random, connection: int) -> Step:
    fields = {**reset(source, connection).arguments["fields"], "queueId": queue(source)}
    if source.random() < 0.5:
        fields["offset"] = offset(source)
    return request(connection, "reset queue", 222, fields)


def clone(source: random.Random, connection: int) -> Step:
    fields = {"srcGroup": group(source), "destGroup": group(source), "topic": topic(source), "offline": "false"}
    return request(connection, "clone offsets", 314, fields)


def consume_stats(source: random.Random, connection: int) -> Step:
    fields = {"consumerGroup": group(source)}
    if source.random() < 0.6:
        fields["topic"] = topic(source)
    return request(connection, "consume stats", 208, fields)


def time_span(source: random.Random, connection: int) -> Step:
    return request(connection, "time span", 303, {"topic": topic(source), "group": group(source)})


def correction(source: random.Random, connection: int) -> Step:
    fields = {"topic": topic(source), "compareGroup": group(source), "filterGroups": source.choice(["", "$g7"])}
    return request(connection, "correction", 308, fields)


def queue_entries(source: random.Random, connection: int) -> Step:
    fields = {
        "topic": topic(source),
        "queueId": source.choice(["0", "1", "9", "-1"]),
        "index": source.choice(["0", "1", "99"]),
        "count": source.choice(["10", "1", "0"]),
        "consumerGroup": source.choice(["", "$g0"]),
    }
    return request(connection, "queue entries", 321, fields)


def subscription_of(source: random.Random, connection: int) -> Step:
    return request(connection, "subscription", 345, {"group": group(source), "topic": topic(source)})


# -- clients


def _heartbeat_of(source: random.Random, connection: int, of: str, name: str) -> dict[str, object]:
    tags = source.choice([[], ["red"], ["red", "blue"]])
    subscription = {
        "topic": name,
        "subString": " || ".join(tags) or "*",
        "subVersion": 1,
        "tagsSet": tags,
        "codeSet": [TAG_CODES[tag] for tag in tags],
        "expressionType": "TAG",
        "classFilterMode": False,
    }
    return {
        "groupName": of,
        "consumeType": source.choice(["CONSUME_PASSIVELY", "CONSUME_ACTIVELY"]),
        "messageModel": source.choice(["CLUSTERING", "CLUSTERING", "BROADCASTING"]),
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
        "unitMode": False,
    }


def heartbeat(source: random.Random, connection: int) -> Step:
    consumer = _heartbeat_of(source, connection, group(source), topic(source))
    data = {
        "clientID": f"$c{connection}",
        "producerDataSet": [{"groupName": "$p0"}] if source.random() < 0.5 else [],
        "consumerDataSet": [consumer] if source.random() < 0.8 else [],
    }
    return request(connection, "heartbeat", 34, {}, body=json.dumps(data))


def members_change(source: random.Random) -> list[Step]:
    """A member is told that another joins its group."""
    steps = []
    for connection in (1, 2):
        consumer = _heartbeat_of(source, connection, "$joined", "$t0")
        data = {"clientID": f"$c{connection}", "producerDataSet": [], "consumerDataSet": [consumer]}
        steps.append(request(connection, "heartbeat", 34, {}, body=json.dumps(data)))
    return [*steps, asked(1, 40)]


def unregister(source: random.Random, connection: int) -> Step:
    fields = {"clientID": f"$c{connection}"}
    if source.random() < 0.8:
        fields["consumerGroup"] = group(source)
    if source.random() < 0.4:
        fields["producerGroup"] = "$p0"
    return request(connection, "unregister", 35, fields)


def _locks(name: str, code: int) -> Kind:
    def make(source: random.Random, connection: int) -> Step:
        queues = [
            {"topic": topic(source), "brokerName": "any", "queueId": source.randrange(3)}
            for _ in range(source.randrange(3))
        ]
        data = {"consumerGroup": group(source), "clientId": f"$c{connection}", "mqSet": queues}
        return request(connection, name, code, {}, body=json.dumps(data))

    return make


def assignment(source: random.Random, connection: int) -> Step:
    data = {
        "topic": topic(source),
        "consumerGroup": group(source),
        "clientId": f"$c{connection}",
        "strategyName": source.choice(["AVG", "AVG", "AVG_BY_CIRCLE", "odd", ""]),
        "messageModel": source.choice(["CLUSTERING", "BROADCASTING"]),
    }
    return request(connection, "query assignment", 400, {}, body=json.dumps(data))


def request_mode(source: random.Random, connection: int) -> Step:
    data = {
        "topic": topic(source),
        "consumerGroup": group(source),
        "mode": source.choice(["POP", "PULL"]),
        "popShareQueueNum": source.choice([0, 2, -1]),
    }
    return request(connection, "set request mode", 401, {}, body=json.dumps(data))


def forbid(source: random.Random, connection: int) -> Step:
    fields = {"group": source.choice(["$g0", "$g0", "$g1", "$g3"]), "topic": topic(source)}
    if source.random() < 0.8:
        fields["readable"] = flag(source)
    return request(connection, "forbid", 353, fields)


def unknown(source: random.Random, connection: int) -> Step:
    return request(connection, "unknown request", source.choice([1, 9, 999, 65000, 200999]), {})


# -- lists of everything: the driver shows what belongs to the sequence


def lists(source: random.Random, connection: int) -> Step:
    code = source.choice([21, 201, 43, 402, 328])
    return request(connection, f"list {code}", code, {}, own=True)


# -- the name server


def route(source: random.Random, connection: int) -> Step:
    fields = {"topic": source.choice([topic(source), READ_ONLY, "$none", ""])}
    if source.random() < 0.3:
        fields["acceptStandardJsonOnly"] = flag(source)
    return request(NAME_SERVER, "route", 105, fields)


def kv_config(source: random.Random, connection: int) -> Step:
    fields = {"namespace": source.choice(["$n0", "$n1"]), "key": source.choice(["a", "b"])}
    code = source.choice([100, 100, 101, 101, 102, 219])
    if code == 100:
        fields["value"] = source.choice(["1", "", "x y"])
    return request(NAME_SERVER, f"kv config {code}", code, fields)


def name_server(source: random.Random, connection: int) -> Step:
    choices = [
        request(NAME_SERVER, "broker members", 901, {"clusterName": "<cluster>", "brokerName": "<broker>"}),
        request(NAME_SERVER, "broker members", 901, {"clusterName": "odd", "brokerName": "odd"}),
        request(NAME_SERVER, "cluster", 106, {}),
        request(NAME_SERVER, "wipe write permission", 205, {"brokerName": "odd"}),
        request(NAME_SERVER, "add write permission", 327, {"brokerName": "odd"}),
        request(NAME_SERVER, "delete route", 216, {"topic": "$none"}),
        request(NAME_SERVER, "unknown request", source.choice([1, 10, 11, 999]), {}),
        request(NAME_SERVER, "topics of cluster", 224, {"cluster": "odd"}),
    ]
    return source.choice(choices)


_OTHER = {"brokerName": "$other", "brokerAddr": "1.2.3.4:10911", "clusterName": "$cluster", "brokerId": "0"}


def _registration(source: random.Random, connection: int) -> Step:
    topics = {
        f"$nt{number}": {
            "topicName": f"$nt{number}",
            "readQueueNums": source.choice([1, 4]),
            "writeQueueNums": source.choice([1, 8]),
            "perm": source.choice([6, 6, 4, 2]),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": source.choice([0, 1]),
            "order": False,
        }
        for number in range(source.randrange(3))
    }
    version = {"counter": source.choice([1, 2]), "timestamp": 17, "stateVersion": 0}
    wrapper = {"topicConfigTable": topics, "dataVersion": version}
    content = {"topicConfigSerializeWrapper": wrapper, "filterServerList": []}
    fields = {**_OTHER, "haServerAddr": "1.2.3.4:10912", "compressed": "false", "bodyCrc32": "0"}
    fields["brokerId"] = source.choice(["0", "0", "1"])
    if fields["brokerId"] == "1":
        fields["brokerAddr"] = "1.2.3.5:10911"
    return request(connection, "register broker", 103, fields, body=json.dumps(content))


def another_broker(source: random.Random) -> list[Step]:
    """Another broker registers with the name server, is asked for, and is removed."""
    named = {"brokerName": "$other"}
    version = json.dumps({"counter": source.choice([1, 2]), "timestamp": 17, "stateVersion": 0})
    of_it = [
        request(NAME_SERVER, "route", 105, {"topic": source.choice(["$nt0", "$nt1"])}),
        request(NAME_SERVER, "route", 105, {"topic": "$nt0", "acceptStandardJsonOnly": "true"}),
        request(NAME_SERVER, "broker members", 901, {**named, "clusterName": "$cluster"}),
        request(NAME_SERVER, "topics of cluster", 224, {"cluster": "$cluster"}),
        request(NAME_SERVER, "wipe write permission", 205, named),
        request(NAME_SERVER, "add write permission", 327, named),
        request(NAME_SERVER, "delete in name server", 216, {"topic": "$nt0"}),
        request(NAME_SERVER, "delete in name server", 216, {"topic": "$nt1", "clusterName": "$cluster"}),
        request(NAME_SERVER, "data version", 322, {**_OTHER}, body=version),
        request(NAME_SERVER, "broker heartbeat", 904, _OTHER),
    ]
    steps = [_registration(source, NAME_SERVER)]
    for _ in range(source.randrange(2, 7)):
        steps.append(source.choice(of_it) if source.random() < 0.85 else _registration(source, NAME_SERVER))
    if source.random() < 0.5:
        steps += [request(NAME_SERVER, "unregister broker", 104, _OTHER), pause(0.5), of_it[0], of_it[2]]
    return steps


KINDS: tuple[tuple[Kind, float], ...] = (
    (create_topic, 4),
    (create_group, 3),
    (delete_group, 1),
    (of_queue("max offset", 30), 3),
    (of_queue("min offset", 31), 2),
    (of_queue("earliest store time", 32), 1),
    (search_offset, 3),
    (get_offset, 4),
    (commit_offset, 4),
    (heartbeat, 4),
    (unregister, 2),
    (of_group("consumer list", 38), 2),
    (of_group("consumer connections", 203), 1),
    (of_group("topics by consumer", 343, "group"), 1),
    (of_group("group config", 352, "group"), 2),
    (of_topic("topic config", 351), 2),
    (of_topic("topic stats", 202), 2),
    (of_topic("topic consumed by", 300), 2),
    (of_topic("delete topic", 215), 2),
    (_locks("lock", 41), 2),
    (_locks("unlock", 42), 1),
    (reset, 3),
    (clone, 1),
    (consume_stats, 2),
    (time_span, 1),
    (correction, 1),
    (queue_entries, 1),
    (subscription_of, 1),
    (assignment, 2),
    (request_mode, 1),
    (forbid, 1),
    (lists, 1),
    (route, 2),
    (kv_config, 1),
    (name_server, 1),
    (unknown, 1),
)

STORIES: tuple[tuple[Story, float], ...] = ((members_change, 0.5), (another_broker, 2))

LAST: tuple[Kind, ...] = (reset_queue, delete_group_only)
