"""Generated sequences of the remoting protocol, for TriMQ and Apache RocketMQ."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.rocketmq_peer import rocketmq_in
from differential import rocketmq_admin_steps as admin
from differential import rocketmq_message_steps as messages
from differential.rocketmq_driver import SENDS, RocketMQDriver
from differential.rocketmq_values import ONE_QUEUE, damaged
from differential.sequences import MISSING, Difference, Explained, Step
from tools.broker import running

PAGE = "docs/rocketmq.md"

_REFUSED = (1, 13, 29)
_READABLE = ("-1", "0", "1", "7")
_NUMBERS = {
    *("d", "e", "f", "g", "h", "j", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "offset"),
    *("suspendTimeoutMillis", "subVersion", "invisibleTime", "pollTime", "bornTime", "initMode", "timestamp"),
    *("delayLevel", "maxReconsumeTimes", "tranStateTableOffset", "commitOrRollback", "maxNum", "beginTimestamp"),
    *("endTimestamp", "index", "count", "readQueueNums", "writeQueueNums", "perm", "topicSysFlag"),
    *("defaultTopicQueueNums", "bornTimestamp", "flag", "reconsumeTimes", "brokerId", "bodyCrc32", "commitLogOffset"),
}
_FILTER_FIELDS = ("subscription", "expressionType")
_BOOLEANS = {
    *("k", "m", "order", "isForce", "setZeroIfNotFound", "readable", "acceptStandardJsonOnly", "cleanOffset"),
    *("offline", "fromTransactionCheck", "_UNIQUE_KEY_QUERY", "unitMode", "batch", "compressed"),
}


def _is_java_exception(found: Difference) -> bool:
    """The request is refused here too."""
    return _code(found.their_answer) == "exception" and _code(found.our_answer) not in (0, None)


def _is_farther(found: Difference) -> bool:
    is_offset = found.step.request == "pull" and found.path == ".fields.nextBeginOffset"
    is_filtered = is_offset and found.step.arguments["fields"].get("subscription") not in ("*", "")
    return is_filtered and MISSING not in (found.ours, found.theirs) and int(found.ours) > int(found.theirs)


def _is_garbled(found: Difference) -> bool:
    """The request is refused here, because of a field that Apache RocketMQ takes for 0 or false."""
    damage = found.step.arguments.get("damaged")
    if damage is None or _code(found.our_answer) not in _REFUSED:
        return False
    value = found.step.arguments["fields"].get(damage)
    return damage in _BOOLEANS or (damage in _NUMBERS and value not in _READABLE)


def _is_refused_here(request: str, *codes: int) -> Callable[[Difference], bool]:
    """The request is refused here with one of these codes, and accepted by the other broker."""

    def applies(found: Difference) -> bool:
        is_refused = _code(found.our_answer) in codes and _code(found.their_answer) == 0
        return found.step.request == request and is_refused

    return applies


def _code(answer: Any) -> Any:
    return answer.get("code") if isinstance(answer, dict) else None


def _is_lease_from_now(found: Difference) -> bool:
    is_time = found.step.request == "change invisible" and found.path == ".fields.invisibleTime"
    return is_time and int(found.theirs) > int(found.ours) > 0


def _is_without_subscription(found: Difference) -> bool:
    is_subscription = found.step.request == "subscription" and found.path == ".body.subscriptionData"
    return (found.step.request == "consume stats" or is_subscription) and found.ours == MISSING


def _is_bad_filter(found: Difference) -> bool:
    is_bad = "bad filter" in found.step.arguments or found.step.arguments.get("damaged") in _FILTER_FIELDS
    return is_bad and _code(found.our_answer) == 23


def _is_forbidden(found: Difference) -> bool:
    """A pull that names its own subscription is refused too; what is forbidden is kept by topic, and with its group,
    which is created."""
    groups = {step.arguments["fields"].get("group") for step in found.earlier if step.request == "forbid"}
    if not groups:
        return False
    if found.step.request == "commit consumer offset":
        is_created = found.step.arguments["fields"].get("consumerGroup") in groups
        return is_created and (_code(found.our_answer), _code(found.their_answer)) == (0, 26)
    if found.step.request.startswith("pull"):
        ours = found.our_answer if isinstance(found.our_answer, dict) else {}
        return ours.get("fields", {}).get("forbiddenType") == "5" != found.their_answer["fields"].get("forbiddenType")
    if found.step.request == "forbid":
        return found.path == ".body.readable" and found.theirs is True
    is_unknown_group = found.path.startswith(".body.subscriptionGroupTable") and found.theirs == MISSING
    return found.step.request == "list 201" and (is_unknown_group or found.path.startswith(".body.forbiddenTable"))


def _is_route_in_cache(found: Difference) -> bool:
    if found.step.request == "route":
        deleted = [step.arguments["fields"]["topic"] for step in found.earlier if step.request == "delete topic"]
        return _code(found.our_answer) == 17 and found.step.arguments["fields"]["topic"] in deleted
    return found.step.request == "query assignment" and found.ours in (MISSING, 0, [], {})


def _is_checked_flag(found: Difference) -> bool:
    return found.step.request == "asked 39" and found.path in (".messages[].flag", ".messages[].times")


def _is_refused_receipt(found: Difference) -> bool:
    """Apache RocketMQ refuses it too if its offset is not in the queue, at which it looks first."""
    is_refused = _code(found.our_answer) in (1, 13, 17, 29, 400) and _code(found.their_answer) in (0, 208)
    return found.step.request == "odd receipt" and is_refused


def _is_of_members(found: Difference) -> bool:
    return found.path.startswith(".body.memberSubscriptions") and found.theirs == MISSING


def _is_queue_without_entries(found: Difference) -> bool:
    is_query = found.step.request == "queue entries"
    return is_query and (found.theirs in (MISSING, 1) or found.our_answer == {"code": 1})


def _is_not_writable(found: Difference) -> bool:
    """Apache RocketMQ sends, or refuses for a reason that it comes to later."""
    ours, theirs = found.our_answer, found.their_answer
    if "meanwhile" in found.step.arguments and isinstance(ours, dict) and isinstance(theirs, dict):
        ours, theirs = ours["second"], theirs["second"]
    elif found.step.arguments.get("code") not in SENDS:
        return False
    return _code(ours) == 16 != _code(theirs)


EXPLAINED = (
    Explained("java-exception", _is_java_exception),
    Explained("garbled-field", _is_garbled),
    Explained("checked-flag", _is_checked_flag),
    Explained("negative-time", _is_refused_here("negative time", 29)),
    Explained("decided-once", _is_refused_here("decide again", 1)),
    Explained("lease-from-now", _is_lease_from_now),
    Explained("delay-time", lambda each: each.path.endswith(".delayTime")),
    Explained("group-topic-map", lambda each: each.path.startswith(".body.groupTopicMap")),
    Explained("read-only-topic", _is_not_writable, is_last=True),
    Explained("reset-range", _is_refused_here("reset queue", 1, 29)),
    Explained("only-in-flight", _is_refused_receipt),
    Explained("queue-entries", _is_queue_without_entries),
    Explained("bad-filter", _is_bad_filter),
    Explained("forbidden-topics", _is_forbidden, is_last=True),
    Explained("member-subscriptions", _is_of_members),
    Explained("route-in-cache", _is_route_in_cache),
    Explained("stats-without-subscription", _is_without_subscription),
    Explained("filtered-messages-skipped", _is_farther),
    Explained("pull-offset", lambda each: each.path.endswith(".pullOffset") or ".pullOffsetTable" in each.path),
)

KINDS = (*messages.KINDS, *admin.KINDS)
STORIES = (*messages.STORIES, *admin.STORIES)

BROKER_SETTINGS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 3000,
    "transactionCheckMax": 2,
}
FLAGS = (
    "--rocketmq-transaction-check-interval-ms",
    "1000",
    "--rocketmq-transaction-timeout-ms",
    "3000",
    "--rocketmq-transaction-check-max",
    "2",
)
"""The same settings of TriMQ; filters and recalls need none."""


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[RocketMQDriver, RocketMQDriver]]:
    (folder / "ours").mkdir()
    with (
        running(folder / "ours", FLAGS) as addresses,
        rocketmq_in(folder / "theirs", "async", BROKER_SETTINGS) as peer,
    ):
        cluster = "DefaultCluster"
        yield (
            RocketMQDriver("a", addresses["rocketmq_broker"], addresses["rocketmq"], "broker-trimq", cluster),
            RocketMQDriver("b", f"127.0.0.1:{peer.port}", f"127.0.0.1:{peer.name_server_port}", "broker-a", cluster),
        )


def generate(source: random.Random) -> list[Step]:
    """Creates a topic and a group, sends, and goes on with requests of all kinds and with a longer story. In the last
    request of one sequence in three, a field is missing or odd: what Apache RocketMQ makes of it may change what
    follows."""
    steps = [admin.create_topic(source, 0, "$t0"), admin.create_group(source, 0, "$g0")]
    steps += [admin.create_topic(source, 0, ONE_QUEUE), admin.create_read_only_topic(source)]
    steps += [messages.send(source, 0) for _ in range(source.randrange(4))]
    for _ in range(source.randrange(4, 16)):
        kind = source.choices([each for each, _ in KINDS], [weight for _, weight in KINDS])[0]
        steps.append(kind(source, source.randrange(3)))
    if source.random() < 0.3:
        story = source.choices([each for each, _ in STORIES], [weight for _, weight in STORIES])[0]
        place = source.randrange(2, len(steps))
        steps[place:place] = story(source)
    if source.random() < 0.1:
        last = (*messages.LAST, *admin.LAST)
        steps.append(source.choice([messages.pull_with_bad_filter(source), *(kind(source, 0) for kind in last)]))
    elif source.random() < 0.3:
        steps[-1] = damaged(source, steps[-1])
    return steps
