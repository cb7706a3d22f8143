"""Codes 25 and 26 (how the broker is set), 28 (how it does), 306, 316 and 329 (what may go, goes now).

What is set comes from the settings the broker was started with: 25 takes what is so already and refuses the rest."""

from __future__ import annotations

import msgspec

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.handlers.bodies import read_property_lines
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import done_when_durable, reply, reply_json
from trimq.protocols.rocketmq.remoting import VERSION, Command

_VERSION_NAME = "V5_5_0"  # whose answers these are
_PATHS = frozenset(("brokerConfigPath", "configBlackList", "rocketmqHome", "storePathRootDir", "storePathCommitLog"))
_HOUR_MS = 3_600_000


def _config(context: Context) -> dict[str, str]:
    """Under the names that a genuine broker has for it."""
    settings, identity = context.shared.settings, context.shared.identity
    return {
        "autoCreateSubscriptionGroup": "true",
        "autoCreateTopicEnable": _word(settings.auto_create_topics),
        "brokerClusterName": identity.cluster_name,
        "brokerId": "0",
        "brokerIP1": identity.address.rpartition(":")[0],
        "brokerName": identity.broker_name,
        "brokerPermission": "6",
        "brokerRole": "ASYNC_MASTER",
        "defaultTopicQueueNums": str(settings.default_queues),
        "deleteWhen": settings.delete_when,
        "enablePropertyFilter": "true",
        "fileReservedTime": str(settings.retention_ms // _HOUR_MS),
        "flushDiskType": "SYNC_FLUSH" if context.shared.is_synced else "ASYNC_FLUSH",
        "listenPort": identity.address.rpartition(":")[2],
        "longPollingEnable": "true",
        "mappedFileSizeCommitLog": str(settings.commit_file_bytes),
        "mappedFileSizeConsumeQueue": "6000000",
        "maxMessageSize": str(settings.message_bytes),
        "messageDelayLevel": settings.delay_levels,
        "recallMessageEnable": "true",
        "timerMaxDelaySec": str(settings.max_delay_ms // 1000),
        "traceTopicEnable": "true",
        "transactionCheckInterval": str(settings.transaction_check_interval_ms),
        "transactionCheckMax": str(settings.transaction_check_max),
        "transactionTimeOut": str(settings.transaction_timeout_ms),
    }


def _word(value: bool) -> str:
    return "true" if value else "false"


def get_config(context: Context, command: Command) -> Reply:
    text = "".join(f"{name}={value}\n" for name, value in sorted(_config(context).items()))
    version = msgspec.json.encode({"counter": 0, "stateVersion": 0, "timestamp": context.shared.started_ms})
    return reply(command, fields={"version": version.decode()}, body=text.encode())


def update_config(context: Context, command: Command) -> Reply:
    context.sharing.require_administrator(context.caller)
    known = _config(context)
    for name, value in read_property_lines(command).items():
        if name in _PATHS:
            raise Failure(Code.NO_PERMISSION, "Can not update config in black list.")
        if known.get(name) != value:
            reason = f"{name[:100]} cannot be set to {value[:100]!r} while the broker runs"
            raise Failure(Code.INVALID_PARAMETER, reason)
    return reply(command)


# -- how it does


def runtime_info(context: Context, command: Command) -> Reply:
    shared = context.shared
    now_ms = shared.clock.message.now_ms()
    sent, read = shared.traffic.all_sent(), shared.traffic.all_read()
    start, durable_end, end = context.sharing.log_ends()
    space = context.sharing.space()
    ratio = (space.total_bytes - space.free_bytes) / max(space.total_bytes, 1)
    put_rates = " ".join(f"{sent.since(now_ms, 0, steps).messages / (steps * 10):.3f}" for steps in (1, 6, 60))
    get_rates = " ".join(f"{read.since(now_ms, 0, steps).messages / (steps * 10):.3f}" for steps in (1, 6, 60))
    total = sent.total()
    table = {
        "bootTimestamp": shared.started_ms,
        "brokerActive": "true",
        "brokerVersion": VERSION,
        "brokerVersionDesc": _VERSION_NAME,
        "commitLogDiskRatio": round(ratio, 4),
        "commitLogMaxOffset": end,
        "commitLogMinOffset": start,
        "consumeQueueDiskRatio": round(ratio, 4),
        "dispatchBehindBytes": 0,  # queues are written with the log
        "earliestMessageTimeStamp": context.sharing.unit_at(context.caller, start).store_ms if end > start else -1,
        "getTransferredTps": get_rates,
        "msgGetTotalTodayMorning": read.before_today(now_ms, 0),
        "msgGetTotalTodayNow": read.total().messages,
        "msgGetTotalYesterdayMorning": read.before_today(now_ms, 1),
        "msgPutTotalTodayMorning": sent.before_today(now_ms, 0),
        "msgPutTotalTodayNow": total.messages,
        "msgPutTotalYesterdayMorning": sent.before_today(now_ms, 1),
        "pageCacheLockTimeMills": 0,
        "putMessageAverageSize": round(total.bytes / max(total.messages, 1), 3),
        "putMessageSizeTotal": total.bytes,
        "putMessageTimesTotal": total.messages,
        "putTps": put_rates,
        "remainHowManyDataToFlush": f"{end - durable_end} B",
        "runtime": _lasted(now_ms - shared.started_ms),
        "startAcceptSendRequestTimeStamp": 0,
        **_QUEUES,
        **_timers(context),
    }
    return reply_json(command, {"table": {name: str(value) for name, value in sorted(table.items())}})


# One thread serves all requests as they come: none waits in a queue of its own.
_QUEUES = {
    f"{kind}ThreadPoolQueue{what}": 0
    for kind in ("send", "pull", "query", "ack", "litePull")
    for what in ("Size", "HeadWaitTimeMills")
}


def _timers(context: Context) -> dict[str, object]:
    """Messages that wait for their time; each comes at its millisecond, so that nothing is behind."""
    waiting = context.shared.delays.count_waiting()
    return {"timerCongestNum": waiting, "timerOffsetBehind": 0, "timerReadBehind": 0}


def _lasted(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


# -- what may go


def clean_expired(context: Context, command: Command) -> Reply:
    """Files of the log that were kept long enough, and with them their part of the queues."""
    ticket = context.sharing.expire(context.caller, context.shared.clock.message.now_ms())
    return done_when_durable(command, ticket)


def clean_unused_topics(context: Context, command: Command) -> Reply:
    context.sharing.drop_strays(context.caller)
    return reply(command)
