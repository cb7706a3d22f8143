"""Differences from Kafka that stay, with the conditions by which they are recognised. docs/kafka.md has the reasons."""

from __future__ import annotations

from differential.kafka_assigned_group_steps import PATTERN_GROUP
from differential.kafka_setting_steps import REFUSED_RATES
from differential.sequences import MISSING, Difference, Explained

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
    arguments = found.step.arguments
    names = [arguments.get("group_id"), *arguments.get("group_ids", ())]
    parts = set(found.path.replace("[]", "").split("."))
    return f"%{PATTERN_GROUP}" in names and bool(parts & _OF_AN_ASSIGNMENT)


EXPLAINED = (
    Explained("reasons", _says_why),
    Explained("settings-of-other-groups", _is_of_another_group_type),
    Explained("refused-quotas", _is_refused_quota),
    Explained("patterns", _is_matched_at_once),
)
