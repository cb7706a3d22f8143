"""GET_BROKER_RUNTIME_INFO (28), CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316),
DELETE_EXPIRED_COMMITLOG (329), GET_BROKER_HA_STATUS (907).

Reports rates, sizes and delays of the broker; deletes expired files and the remains of deleted topics at once.
Not served: runtime keys about delay levels (`scheduleMessageOffset_…`) and about folders (`commitLogDiskRatio_…`)."""

from __future__ import annotations

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.state.statistics import TrafficCounter
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_json
from trimq.wire.remoting import VERSION, Command

_VERSION_NAME = "V5_5_0"  # responses follow this version of Apache RocketMQ


def runtime_info(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)
    services = context.services
    now_ms = services.clock.message.now_ms()
    sent, read = services.traffic.all_sent(), services.traffic.all_read()
    start, durable_end, end = context.commit_log.lookup.log_ends()
    space = context.commit_log.admin.space()
    ratio = (space.total_bytes - space.free_bytes) / max(space.total_bytes, 1)
    found, missed, total = services.traffic.found, services.traffic.missed, sent.total()
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
        "commitLogDirCapacity": f"Total : {_size(space.total_bytes)}, Free : {_size(space.free_bytes)}.",
        "dispatchMaxBuffer": 0,  # as above
        "getFoundTps": _rates(now_ms, found),
        "getMessageEntireTimeMax": services.traffic.longest_read_ms,
        "getMissTps": _rates(now_ms, missed),
        "getTotalTps": _rates(now_ms, found, missed),
        "getTransferredTps": _rates(now_ms, read),
        "msgGetTotalTodayMorning": read.before_today(now_ms, 0),
        "msgGetTotalTodayNow": read.total().messages,
        "msgGetTotalYesterdayMorning": read.before_today(now_ms, 1),
        "msgPutTotalTodayMorning": sent.before_today(now_ms, 0),
        "msgPutTotalTodayNow": total.messages,
        "msgPutTotalYesterdayMorning": sent.before_today(now_ms, 1),
        "pageCacheLockTimeMills": 0,
        "putMessageAverageSize": round(total.bytes / max(total.messages, 1), 3),
        "putMessageFailedTimes": services.counts.refused_writes() + services.sending.put_times.failed,
        "putMessageSizeTotal": total.bytes,
        "putMessageTimesTotal": total.messages,
        "putTps": _rates(now_ms, sent),
        "remainHowManyDataToFlush": _size(end - durable_end),
        "remainTransientStoreBufferNumbs": _NO_LIMIT,  # there is no pool of buffers that could run out
        "runtime": _lasted(now_ms - services.started_ms),
        "startAcceptSendRequestTimeStamp": 0,
        **_QUEUES,
        **_timers(context, now_ms),
        **_put_times(context),
    }
    return reply_json(command, {"table": {name: str(value) for name, value in sorted(table.items())}})


# One thread handles all requests in the order of arrival: there are no thread pools, and no queues before them.
_QUEUES = {
    f"{kind}ThreadPoolQueue{what}": 0
    for kind in ("send", "pull", "query", "ack", "litePull")
    for what in ("Size", "Capacity", "HeadWaitTimeMills")
} | {"EndTransactionQueueSize": 0, "EndTransactionThreadPoolQueueCapacity": 0}

_NO_LIMIT = (1 << 31) - 1


def _rates(now_ms: int, *counters: TrafficCounter) -> str:
    """Rates per second of the last 10, 60 and 600 seconds."""
    return " ".join(f"{sum(each.rate(now_ms, steps) for each in counters):.3f}" for steps in (1, 6, 60))


def _size(count: int) -> str:
    """Bytes as Apache RocketMQ shows them."""
    size, unit = float(count), ""
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if size < 1024 or unit == "Pi":
            break
        size /= 1024
    return f"{size:.1f} {unit}B" if unit else f"{count} B"


def _put_times(context: Context) -> dict[str, object]:
    times, now_ms = context.services.sending.put_times, context.services.clock.liveness.now_ms()
    return {
        "putLatency99": f"{times.percentile(now_ms, 0.99):.2f}",
        "putLatency999": f"{times.percentile(now_ms, 0.999):.2f}",
        "putMessageDistributeTime": times.distribution(now_ms),
        "putMessageEntireTimeMax": times.longest_ms,
    }


def _timers(context: Context, now_ms: int) -> dict[str, object]:
    """Counts delayed messages. Each is delivered at its millisecond, so the timers are never behind."""
    scheduler = context.services.sending.scheduler
    return {
        "timerCongestNum": scheduler.count_waiting(),
        "timerDequeueTps": round(scheduler.dequeued.rate(now_ms, 1), 3),
        "timerEnqueueTps": round(scheduler.enqueued.rate(now_ms, 1), 3),
        "timerOffsetBehind": 0,
        "timerReadBehind": 0,
    }


def _lasted(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def ha_status(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)
    """Reports a master without slaves."""
    _, _, end = context.commit_log.lookup.log_ends()
    as_slave = {
        "isActivated": False,
        "lastReadTimestamp": 0,
        "lastWriteTimestamp": 0,
        "masterFlushOffset": 0,
        "maxOffset": 0,
        "transferredByteInSecond": 0,
    }
    shown = {
        "haClientRuntimeInfo": as_slave,
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": True,
        "masterCommitLogMaxOffset": end,
    }
    return reply_json(command, shown)


# -- deletion


def clean_expired(context: Context, command: Command) -> Reply:
    """Deletes expired files of the commit log, and with them their entries in the consume queues."""
    ticket = context.commit_log.admin.expire(context.caller, context.services.clock.message.now_ms())
    return done_when_durable(command, ticket)


def clean_unused_topics(context: Context, command: Command) -> Reply:
    context.commit_log.admin.drop_strays(context.caller)
    return reply(command)
