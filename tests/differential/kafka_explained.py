"""Differences from Kafka that stay, with the conditions by which they are recognised. docs/kafka.md has the reasons."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from differential.kafka_assigned_group_steps import PATTERN_GROUP, SHARED_GROUP
from differential.kafka_setting_steps import BROKER, REFUSED_RATES
from differential.kafka_topic_steps import MANY_PARTITIONS
from differential.sequences import MISSING, Difference, Explained

_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
_UNKNOWN_SERVER_ERROR = -1
_UNKNOWN_TOPIC_OR_PARTITION = 3
_TOPIC_AUTHORIZATION_FAILED = 29
_CONCURRENT_TRANSACTIONS = 51
_READS = ("Fetch", "ListOffsets", "OffsetForLeaderEpoch")
_TOO_LARGE = "x" * 4097  # metadata of a committed offset
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
    """Both refuse with the same code; Kafka without a message."""
    if not found.path.endswith("error_message") or found.theirs or found.ours != "<text>":
        return False
    return all(ours.get("error_code") == theirs.get("error_code") for ours, theirs in _elements(found))


def _is_of_another_group_type(found: Difference) -> bool:
    name = found.path.removeprefix(".results[].configs.")
    return found.step.request == "DescribeConfigs" and found.ours == MISSING and name.startswith(_OTHER_GROUP_SETTINGS)


def _is_refused_quota(found: Difference) -> bool:
    if found.step.request != "AlterClientQuotas" or not found.path.startswith(".entries[].error_"):
        return False
    entries = found.step.arguments["entries"]
    return found.theirs in (0, None) and any(op["key"] in REFUSED_RATES for each in entries for op in each["ops"])


def _is_matched_at_once(found: Difference) -> bool:
    if found.step.request == "ListGroups" and found.path in (".groups[].group_state", ".groups.length"):
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
    """In a group with classic members too, the two members of a number have topics in common."""
    is_mixed = any(each.request == "JoinGroup" and each.arguments["group_id"] == "%g0" for each in found.earlier)
    return _is_about_assignment(found, SHARED_GROUP) or (is_mixed and _is_about_assignment(found, "g0"))


def _is_about_assignment(found: Difference, group: str) -> bool:
    arguments = found.step.arguments
    names = [arguments.get("group_id"), *arguments.get("group_ids", ())]
    parts = set(found.path.replace("[]", "").split("."))
    return f"%{group}" in names and bool(parts & _OF_AN_ASSIGNMENT)


def _is_server_error(found: Difference) -> bool:
    """Kafka answers this element with UNKNOWN_SERVER_ERROR, or nothing at all; TriMQ refuses the request or carries it
    out."""
    if found.theirs == "no answer":
        return True
    elements = _elements(found)
    if found.path.endswith(".length"):
        key = found.path.removesuffix(".length").rpartition(".")[2]
        return any(_has_failed(theirs) or any(map(_has_failed, theirs.get(key) or ())) for _, theirs in elements)
    return bool(elements) and all(_has_failed(theirs) for _, theirs in elements)


def _has_failed(element: Any) -> bool:
    """Returns whether nothing in the element was carried out."""
    return set(_codes(element)) == {_UNKNOWN_SERVER_ERROR}


def _elements(found: Difference) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The innermost elements of both answers that have this difference."""
    *names, last = found.path.removesuffix(".length").removesuffix("[]").split(".")
    pairs: list[tuple[Any, Any]] = [(found.our_answer, found.their_answer)]
    for name in names[1:]:
        key = name.removesuffix("[]")
        pairs = [(ours.get(key), theirs.get(key)) for ours, theirs in pairs]
        if name != key:
            pairs = [pair for ours, theirs in pairs for pair in zip(ours or (), theirs or (), strict=False)]
        pairs = [pair for pair in pairs if all(isinstance(each, dict) for each in pair)]
    return [pair for pair in pairs if _has(pair, last, found)]


def _has(pair: tuple[Any, Any], key: str, found: Difference) -> bool:
    if not all(isinstance(each, dict) for each in pair):
        return False
    values = [each.get(key, MISSING) for each in pair]
    if found.path.endswith((".length", "[]")):
        return values[0] != values[1]
    return values == [found.ours, found.theirs]


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


def _is_malformed_subscription(found: Difference) -> bool:
    """Kafka fails where nobody waits for an answer, if it cannot read the subscription of a member."""
    joins = [step for step in [*found.earlier, found.step] if step.request == "JoinGroup"]
    is_malformed = any(
        "cut" in offered["metadata"]
        for step in joins
        for offered in step.arguments["protocols"]
        if step.arguments["group_id"] == found.step.arguments.get("group_id")
    )
    has_failed = found.theirs == "blocked" or _UNKNOWN_SERVER_ERROR in _codes(found.their_answer)
    return is_malformed and found.step.request == "JoinGroup" and has_failed


def _is_of_another_leader(found: Difference) -> bool:
    """When the leader leaves, the first of the others in a hash map of Kafka's leads. Only the leader is told who the
    members are."""
    path = found.path.removeprefix(".late").removeprefix(".answer")
    is_other = path == ".leader" or (path == ".members.length" and 0 in (found.ours, found.theirs))
    return is_other and any(step.request == "LeaveGroup" for step in found.earlier)


def _is_group_without_offsets(found: Difference) -> bool:
    """Kafka lists a group that a refused commit made only after the next write of its coordinator."""
    if found.step.request != "ListGroups" or found.path != ".groups.length":
        return False
    ours, theirs = (
        {each["group_id"] for each in answer["groups"]} for answer in (found.our_answer, found.their_answer)
    )
    commits = [step.arguments for step in found.earlier if step.request == "OffsetCommit"]
    refused = {each["group_id"] for each in commits if _TOO_LARGE in json.dumps(each)}
    return theirs < ours and ours - theirs <= refused


def _owns_a_partition_twice(found: Difference) -> bool:
    """Kafka cannot convert a classic group if two of its members were assigned the same partition."""
    if found.step.request != "ConsumerGroupHeartbeat" or found.their_answer.get("error_code") != -1:
        return False
    synced = [step.arguments for step in found.earlier if step.request == "SyncGroup"]
    return any(
        max(Counter(_assigned(each)).values(), default=0) > 1
        for each in synced
        if each["group_id"] == found.step.arguments["group_id"]
    )


def _assigned(synced: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for each in synced["assignments"]:
        for topic, partitions in each["assignment"]["assigned"].items():
            yield from ((topic, partition) for partition in partitions)


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


def _is_of_deleted_topic(found: Difference) -> bool:
    """The transaction still names the partitions of a topic that was deleted."""
    has_deleted = any(step.request == "DeleteTopics" for step in found.earlier)
    is_fewer = found.path == ".transaction_states[].topics.length" and found.ours < found.theirs
    return found.step.request == "DescribeTransactions" and has_deleted and is_fewer


def _is_of_next_segment(found: Difference) -> bool:
    """Kafka reads one segment at a time. Records without a time, or with one of long ago, end a segment."""
    if found.step.request != "Fetch" or not found.path.endswith(".records.batches.length"):
        return False
    pairs = [(ours["batches"], theirs["batches"]) for ours, theirs in _elements(found)]
    return all(
        theirs and ours[: len(theirs)] == theirs and any(isinstance(each["maxts"], int) for each in theirs)
        for ours, theirs in pairs
    )


def _is_removed_with_its_topic(found: Difference) -> bool:
    """Kafka removes the partitions of a deleted topic one by one; the first one ends the fetches that wait."""
    if not found.path.startswith(".late.responses[].partitions[]") or found.step.request == "Fetch":
        return False
    codes = [(ours.get("error_code"), theirs.get("error_code")) for ours, theirs in _elements(found)]
    is_first = all(pair == (_UNKNOWN_TOPIC_OR_PARTITION, 0) for pair in codes)
    return bool(codes) and is_first and _UNKNOWN_TOPIC_OR_PARTITION in _codes(found.their_answer["late"])


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
    Explained("malformed-subscriptions", _is_malformed_subscription, is_last=True),
    Explained("leaders", _is_of_another_leader, is_last=True),
    Explained("groups-without-offsets", _is_group_without_offsets),
    Explained("partitions-of-two-members", _owns_a_partition_twice, is_last=True),
    Explained("internal-topics", _is_about_internal_topics),
    Explained("reasons", _says_why),
    Explained("unknown-settings-of-brokers", _is_a_setting_of_no_broker),
    Explained("whole-batches", _is_part_of_a_batch),
    Explained("segments", _is_of_next_segment),
    Explained("held-fetches", _is_removed_with_its_topic),
    Explained("deleted-topics-of-transactions", _is_of_deleted_topic),
    Explained("aborted-transactions", _is_aborted_later),
    Explained("fenced-coordinator", _is_fenced_coordinator, is_last=True),
    Explained("most-partitions", _is_too_many_partitions),
    Explained("retention-of-the-broker", _is_retention_in_ms),
    Explained("settings-of-other-groups", _is_of_another_group_type),
    Explained("refused-quotas", _is_refused_quota),
    Explained("patterns", _is_matched_at_once),
    Explained("shares-of-members", _is_shared_out),
)
