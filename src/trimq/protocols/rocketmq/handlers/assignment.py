"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402).

Divides the queues of a topic among the members of a group, as clients do that rebalance themselves. In POP mode each
member reads all queues, or its own and those of `popShareQueueNum` other members. The mode is set per topic and group.
Strategies: AVG, AVG_BY_CIRCLE, and STICKY of TriMQ's extension, in which members keep their queues. Not served:
others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trimq.core.commit_log.topics import READABLE
from trimq.errors import UnknownTopic
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.clients.registry import BROADCASTING
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_object
from trimq.protocols.rocketmq.state.system_topics import RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply_json
from trimq.wire.extension import STICKY
from trimq.wire.remoting import Command

MODES_NAMESPACE = "TRIMQ_MESSAGE_REQUEST_MODE"
"""KV config namespace in which the modes are stored."""

_PULL, _POP = "PULL", "POP"
_ALL_QUEUES = -1
_EVENLY, _IN_CIRCLES, _ = _STRATEGIES = ("AVG", "AVG_BY_CIRCLE", STICKY)


class RequestMode(msgspec.Struct, frozen=True):
    """Mode in which a group reads a topic. In POP mode each member reads its own queues and those of `share`
    (popShareQueueNum) other members; 0 or less: all queues."""

    topic: str
    group: str
    mode: str = _PULL
    share: int = 0

    def described(self) -> dict[str, Any]:
        return {
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.share,
            "topic": self.topic,
        }


def set_mode(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)  # before the group is created
    data = read_object(command)
    topic, group, mode = (_text(data, name) for name in ("topic", "consumerGroup", "mode"))
    share = data.get("popShareQueueNum", 0)
    if mode not in (_PULL, _POP):
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"mode must be PULL or POP, not {mode[:40]}")
    if not isinstance(share, int) or not -1 <= share <= 0x7FFFFFFF:
        raise RemotingRefusal(
            ResponseCode.INVALID_PARAMETER, f"popShareQueueNum {share!r:.40} is not in the range -1 to 2147483647"
        )
    if topic.startswith(RETRY_PREFIX):
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    if context.commit_log.topics.find(context.caller, topic) is None:
        raise RemotingRefusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:200]}] not exist")
    context.get_or_create_group(group)
    text = msgspec.json.encode(RequestMode(topic, group, mode, share)).decode()
    return done_when_durable(
        command, context.commit_log.kv_config.put(context.caller, MODES_NAMESPACE, _key(topic, group), text)
    )


def all_modes(context: Context, command: Command) -> Reply:
    table: dict[str, dict[str, Any]] = {}
    for text in (context.commit_log.kv_config.all(context.caller, MODES_NAMESPACE) or {}).values():
        mode = msgspec.json.decode(text, type=RequestMode)
        if context.commit_log.groups.is_visible(context.caller, mode.group):
            table.setdefault(mode.topic, {})[mode.group] = mode.described()
    return reply_json(command, {"messageRequestModeMap": table})


def mode_of(context: Context, topic: str, group: str) -> RequestMode:
    text = (context.commit_log.kv_config.all(context.caller, MODES_NAMESPACE) or {}).get(_key(topic, group))
    return RequestMode(topic, group) if text is None else msgspec.json.decode(text, type=RequestMode)


def _key(topic: str, group: str) -> str:
    """Topic names cannot contain `@`."""
    return f"{topic}@{group}"


def query_assignment(context: Context, command: Command) -> Reply:
    data = read_object(command)
    topic, group, client_id = (_text(data, name) for name in ("topic", "consumerGroup", "clientId"))
    strategy, model = data.get("strategyName"), data.get("messageModel")
    context.commit_log.groups.require_read(context.caller, group)
    try:
        found_topic = context.commit_log.topics.get(context.caller, topic)
        definition = found_topic.definition
    except UnknownTopic:
        return reply_json(command, {})  # without a list, clients keep the queues that they have
    is_divided = model != BROADCASTING
    if is_divided and (strategy not in _STRATEGIES or context.services.clients.group(group) is None):
        return reply_json(command, {})
    count = definition.read_streams if definition.permissions & READABLE else 0
    mode = mode_of(context, topic, group)
    if not is_divided:
        numbers: Sequence[int] = range(count)
    elif mode.mode == _POP and not topic.startswith(RETRY_PREFIX):
        numbers = _pop_queues(mode, _members(context, group), client_id, count)
    elif strategy == STICKY:
        members = _members(context, group)
        numbers = context.services.consuming.sticky.queues_of(group, found_topic.id, members, count, client_id)
    else:
        numbers = _allocate(str(strategy), _members(context, group), client_id, range(count))
    broker = context.services.identity.broker_name
    found = [
        {"messageQueue": {"brokerName": broker, "queueId": number, "topic": topic}, "mode": mode.mode}
        for number in numbers
    ]
    return reply_json(command, {"messageQueueAssignments": found})


def _members(context: Context, group: str) -> list[str]:
    known = context.services.clients.group(group)
    return [] if known is None else sorted(set(known.client_ids))


def _pop_queues(mode: RequestMode, members: Sequence[str], client_id: str, count: int) -> Sequence[int]:
    if client_id not in members or not count:
        return []
    if not 0 < mode.share < len(members) - 1:
        return [_ALL_QUEUES]
    place = members.index(client_id)
    if len(members) > count:
        return [place % count]
    # Each member pops from its own queues and from those of the next `share` members.
    near = [members[(place + step) % len(members)] for step in range(mode.share + 1)]
    return [number for member in near for number in _allocate(_EVENLY, members, member, range(count))]


def _allocate(strategy: str, members: Sequence[str], client_id: str, queues: Sequence[int]) -> Sequence[int]:
    """Returns the queues of one member; the same for every caller, so that the members do not overlap."""
    if client_id not in members:
        return []
    place, size = members.index(client_id), len(members)
    if strategy == _IN_CIRCLES:
        return queues[place::size]
    least, more = divmod(len(queues), size)
    begin = place * least + min(place, more)
    return queues[begin : begin + least + (place < more)]


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"{name} is missing")
    return value
