"""System topics that a RocketMQ broker has from its first start on, and which of them clients may not write."""

from __future__ import annotations

from trimq.core.commit_log.topics import INHERITABLE, READABLE, WRITABLE, CommitLogTopicDefinition
from trimq.formats.rocketmq_unit.dead_letters import CHECK_MAX_TOPIC
from trimq.formats.rocketmq_unit.schedule import SCHEDULE_TOPIC, WHEEL_TOPIC
from trimq.model import DEFAULT_NAMESPACE

DEFAULT_TOPIC = "TBW102"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

_BOTH = READABLE | WRITABLE

# Topics that only the broker writes. A foreign message in the timer wheel topic would stop all timers of Apache
# RocketMQ.
BROKER_ONLY_TOPICS = frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC, "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", WHEEL_TOPIC)
)


def system_topics(
    cluster_name: str, broker_name: str, default_queues: int, levels: int
) -> list[CommitLogTopicDefinition]:
    inherited = _BOTH | INHERITABLE
    counts = {
        DEFAULT_TOPIC: (default_queues, inherited),
        "SELF_TEST_TOPIC": (1, _BOTH),
        "BenchmarkTest": (1024, _BOTH),
        cluster_name: (16, inherited),
        broker_name: (1, inherited),
        "OFFSET_MOVED_EVENT": (1, _BOTH),
        SCHEDULE_TOPIC: (levels, _BOTH),
        f"{cluster_name}_REPLY_TOPIC": (1, _BOTH),
        HALF_TOPIC: (1, _BOTH),
        OP_TOPIC: (1, _BOTH),
        CHECK_MAX_TOPIC: (1, _BOTH),
        WHEEL_TOPIC: (1, _BOTH),
        f"rmq_sys_REVIVE_LOG_{cluster_name}": (8, _BOTH),
        f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}": (1, INHERITABLE),
        "RMQ_SYS_TRACE_TOPIC": (1, _BOTH),
    }
    return [
        CommitLogTopicDefinition(DEFAULT_NAMESPACE, name, count, count, permissions)
        for name, (count, permissions) in counts.items()
    ]


def protected_topics(cluster_name: str, broker_name: str) -> frozenset[str]:
    """Topics that clients cannot create, change or delete. Some are used by Apache RocketMQ only."""
    return frozenset(
        (
            *(DEFAULT_TOPIC, "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", SCHEDULE_TOPIC, WHEEL_TOPIC),
            *(HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC, "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC"),
            *("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
            *(cluster_name, broker_name, f"{cluster_name}_REPLY_TOPIC"),
            *(f"rmq_sys_REVIVE_LOG_{cluster_name}", f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}"),
        )
    )
