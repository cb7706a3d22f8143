"""Differences from Kafka that stay, with the conditions by which they are recognised. docs/kafka.md has the reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from differential.kafka_assigned_group_steps import PATTERN_GROUP, SHARED_GROUP
from differential.kafka_setting_steps import BROKER, REFUSED_RATES
from differential.kafka_topic_steps import MANY_PARTITIONS
from differential.sequences import MISSING, Difference, Explained

_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
_TOPIC_AUTHORIZATION_FAILED = 29
_CONCURRENT_TRANSACTIONS = 51
_READS = ("Fetch", "ListOffsets", "OffsetForLeaderEpoch")
_OTHER_GROUP_SETTINGS = ("share.", "streams.", "consumer.assignment.", "consumer.assignor.")
_OF_AN_ASSIGNMENT = {
    "assignment",
    "target_assignment",
    "member_epoch",
    "group_epoch",
    "assignment_epoch",
    "group_state",
}


def _says_why(found: Difference) -> bool:
    return found.path.endswith("error_message") and not found.theirs and found.ours == "<text>"


def _is_of_another_group_type(found: Difference) -> bool:
    name = found.path.removeprefix(".results[].configs.")
    return found.step.request == "DescribeConfigs" and found.ours == MISSING and name.startswith(_OTHER_GROUP_SETTINGS)


def _is_refused_quota(found: Difference) -> bool:
    if found.step.request != "AlterClientQuotas" or not found.path.startswith(".entries[].error_"):
        return False
    entries = found.step.arguments["entries"]
    return found.theirs in (0, None) and any(op["key"] in REFUSED_RATES for each in entries for op in each["ops"])


def _is_matched_at_once(found: Difference) -> bool:
    if found.step.request == "ListGroups" and found.path == ".groups[].group_state":
        return _is_only_about(found, f"%{PATTERN_GROUP}")
    return _is_about_assignment(found, PATTERN_GROUP)


def _is_only_about(found: Difference, group: str) -> bool:
    """Returns whether the lists of groups differ in this group only."""
    others = [
        [each for each in answer["groups"] if each["group_id"] != group]
        for answer in (found.our_answer, found.their_answer)
    ]
    return others[0] == others[1]


def _is_shared_out(found: Difference) -> bool:
    return _is_about_assignment(found, SHARED_GROUP)


def _is_about_assignment(found: Difference, group: str) -> bool:
    arguments = found.step.arguments
    names = [arguments.get("group_id"), *arguments.get("group_ids", ())]
    parts = set(found.path.replace("[]", "").split("."))
    return f"%{group}" in names and bool(parts & _OF_AN_ASSIGNMENT)


def _is_server_error(found: Difference) -> bool:
    """Kafka answers with UNKNOWN_SERVER_ERROR, or not at all; TriMQ refuses the request or carries it out."""
    return found.their_answer == "no answer" or -1 in _codes(found.their_answer)


def _codes(answer: Any) -> Iterator[Any]:
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key.endswith("error_code"):
                yield value
            else:
                yield from _codes(value)
    elif isinstance(answer, list):
        for each in answer:
            yield from _codes(each)


def _is_about_internal_topics(found: Difference) -> bool:
    """TOPIC_AUTHORIZATION_FAILED, and what Kafka answers instead of it."""
    if not any(name in json.dumps(found.step.arguments) for name in _INTERNAL_TOPICS):
        return False
    if found.step.request == "DescribeProducers":
        return found.path.endswith("active_producers.length") and found.ours == 0
    return found.ours == _TOPIC_AUTHORIZATION_FAILED or (
        found.step.request in _READS and _TOPIC_AUTHORIZATION_FAILED in _codes(found.our_answer)
    )


def _is_a_setting_of_no_broker(found: Difference) -> bool:
    """Kafka's brokers accept settings that nobody knows."""
    is_change = found.step.request in ("AlterConfigs", "IncrementalAlterConfigs")
    resources = found.step.arguments["resources"] if is_change else ()
    is_refused = (found.ours, found.theirs) in ((42, 0), ("<text>", None))
    return is_refused and any(each["resource_type"] == BROKER for each in resources)


def _is_part_of_a_batch(found: Difference) -> bool:
    return found.step.request == "Fetch" and found.path.endswith(".records.left") and found.ours == 0


def _is_aborted_later(found: Difference) -> bool:
    return found.path.endswith(".aborted_transactions.length") and found.ours < found.theirs


def _is_fenced_coordinator(found: Difference) -> bool:
    """Kafka's coordinator cannot write its markers any more, and the transaction stays prepared."""
    by_hand = [
        marker
        for step in found.earlier
        if step.request == "WriteTxnMarkers"
        for marker in step.arguments["markers"]
        if marker["coordinator_epoch"] > 0
    ]
    return bool(by_hand) and _CONCURRENT_TRANSACTIONS in _codes(found.their_answer)


def _is_too_many_partitions(found: Difference) -> bool:
    topics = found.step.arguments["topics"] if found.step.request == "CreatePartitions" else ()
    return any(topic["count"] == MANY_PARTITIONS for topic in topics) and (found.ours, found.theirs) == (37, 0)


def _is_retention_in_ms(found: Difference) -> bool:
    return found.path.startswith(".results[].configs.log.retention.ms")


EXPLAINED = (
    Explained("server-errors", _is_server_error),
    Explained("internal-topics", _is_about_internal_topics),
    Explained("reasons", _says_why),
    Explained("unknown-settings-of-brokers", _is_a_setting_of_no_broker),
    Explained("whole-batches", _is_part_of_a_batch),
    Explained("aborted-transactions", _is_aborted_later),
    Explained("fenced-coordinator", _is_fenced_coordinator, is_last=True),
    Explained("most-partitions", _is_too_many_partitions),
    Explained("retention-of-the-broker", _is_retention_in_ms),
    Explained("settings-of-other-groups", _is_of_another_group_type),
    Explained("refused-quotas", _is_refused_quota),
    Explained("patterns", _is_matched_at_once),
    Explained("shares-of-members", _is_shared_out),
)
