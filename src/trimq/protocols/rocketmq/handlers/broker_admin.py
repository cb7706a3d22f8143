"""GET_BROKER_RUNTIME_INFO (28), CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316),
DELETE_EXPIRED_COMMITLOG (329).

Reports rates, sizes and delays of the broker; deletes expired files and the remains of deleted topics at once.
Not served: runtime keys about thread pools, except the sizes of their queues, which are always 0."""

from __future__ import annotations

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.remoting import VERSION, Command
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_json

_VERSION_NAME = "V5_5_0"  # responses follow this version of Apache RocketMQ


def runtime_info(context: Context, command: Command) -> Reply:
    services = context.services
    now_ms = services.clock.message.now_ms()
    sent, read = services.traffic.all_sent(), services.traffic.all_read()
    start, durable_end, end = context.commit_log.lookup.log_ends()
    space = context.commit_log.admin.space()
    ratio = (space.total_bytes - space.free_bytes) / max(space.total_bytes, 1)
    put_rates = " ".join(f"{sent.since(now_ms, 0, steps).messages / (steps * 10):.3f}" for steps in (1, 6, 60))
    get_rates = " ".join(f"{read.since(now_ms, 0, steps).messages / (steps * 10):.3f}" for steps in (1, 6, 60))
    total = sent.total()
    table = {
        "bootTimestamp": services.started_ms,
        "brokerActive": "true",
        "brokerVersion": VERSION,
        "brokerVersionDesc": _VERSION_NAME,
        "commitLogDiskRatio": round(ratio, 4),
        "commitLogMaxOffset": end,
        "commitLogMinOffset": start,
        "consumeQueueDiskRatio": round(ratio, 4),
        "dispatchBehindBytes": 0,  # consume queues are written with the commit log
        "earliestMessageTimeStamp": context.commit_log.lookup.unit_at(context.caller, start).store_ms
        if end > start
        else -1,
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
        "runtime": _lasted(now_ms - services.started_ms),
        "startAcceptSendRequestTimeStamp": 0,
        **_QUEUES,
        **_timers(context),
    }
    return reply_json(command, {"table": {name: str(value) for name, value in sorted(table.items())}})


# One thread handles all requests in the order of arrival, so no request waits in the queue of a thread pool.
_QUEUES = {
    f"{kind}ThreadPoolQueue{what}": 0
    for kind in ("send", "pull", "query", "ack", "litePull")
    for what in ("Size", "HeadWaitTimeMills")
}


def _timers(context: Context) -> dict[str, object]:
    """Counts delayed messages. Each is delivered at its millisecond, so the timers are never behind."""
    waiting = context.services.sending.scheduler.count_waiting()
    return {"timerCongestNum": waiting, "timerOffsetBehind": 0, "timerReadBehind": 0}


def _lasted(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


# -- deletion


def clean_expired(context: Context, command: Command) -> Reply:
    """Deletes expired files of the commit log, and with them their entries in the consume queues."""
    ticket = context.commit_log.admin.expire(context.caller, context.services.clock.message.now_ms())
    return done_when_durable(command, ticket)


def clean_unused_topics(context: Context, command: Command) -> Reply:
    context.commit_log.admin.drop_strays(context.caller)
    return reply(command)
