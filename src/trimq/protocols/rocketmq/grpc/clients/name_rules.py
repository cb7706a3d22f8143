"""Rules for names of topics and groups in gRPC calls."""

from __future__ import annotations

from functools import lru_cache

from trimq.errors import InvalidName, NameTooLong
from trimq.protocols.rocketmq.grpc.clients.call import Call
from trimq.protocols.rocketmq.grpc.clients.text_rules import is_blank
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.handlers.groups import LEGAL_IN_GROUPS, LONGEST_GROUP
from trimq.protocols.rocketmq.handlers.send import LONGEST_TOPIC
from trimq.protocols.rocketmq.state.system_topics import system_topics

_SYSTEM_PREFIX, _SYSTEM_GROUP_PREFIX = "rmq_sys_", "CID_RMQ_SYS_"


def check_topic(call: Call, name: str) -> None:
    if is_blank(name):
        raise GrpcRefusal(Code.ILLEGAL_TOPIC, "The specified topic is blank")
    if len(name) > LONGEST_TOPIC:
        raise GrpcRefusal(Code.ILLEGAL_TOPIC, f"The specified topic is longer than topic max length {LONGEST_TOPIC}")
    try:
        call.commit_log.topics.check_name(name)
    except (InvalidName, NameTooLong) as refusal:
        raise GrpcRefusal(Code.ILLEGAL_TOPIC, str(refusal)) from None
    identity = call.services.identity
    if name.startswith(_SYSTEM_PREFIX) or name in _system_names(identity.cluster_name, identity.broker_name):
        raise GrpcRefusal(Code.ILLEGAL_TOPIC, "cannot access system topic")


def check_group(name: str) -> None:
    if is_blank(name):
        raise GrpcRefusal(Code.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if len(name) > LONGEST_GROUP:
        raise GrpcRefusal(Code.ILLEGAL_CONSUMER_GROUP, f"the specified group is longer than {LONGEST_GROUP} characters")
    if not LEGAL_IN_GROUPS.issuperset(name):
        reason = f"the specified group[{name}] may contain only letters, digits, '%', '|', '_' and '-'"
        raise GrpcRefusal(Code.ILLEGAL_CONSUMER_GROUP, reason)
    if name.startswith(_SYSTEM_GROUP_PREFIX):
        raise GrpcRefusal(Code.ILLEGAL_CONSUMER_GROUP, "cannot use system consumer group")


@lru_cache(maxsize=16)
def _system_names(cluster_name: str, broker_name: str) -> frozenset[str]:
    return frozenset(each.name for each in system_topics(cluster_name, broker_name, 1, 1))
