"""UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26): settings under the names of Apache RocketMQ.

An update changes all settings of the request or none. A change lasts until the broker stops; the configuration file is
not written. A value that is already set is accepted.
Not served: settings that Apache RocketMQ does not change at run time, or that have no effect here; they are refused."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from trimq.config import RocketMQ as RocketMQSettings
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_property_lines
from trimq.protocols.rocketmq.transactions.check_back import check_back_settings
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.replies import reply
from trimq.wire.remoting import Command

_PATHS = frozenset(("brokerConfigPath", "configBlackList", "rocketmqHome", "storePathRootDir", "storePathCommitLog"))
_HOUR_MS = 3_600_000


class _DynamicSetting(NamedTuple):
    """Setting that may change at run time: its TriMQ name, and the size of a RocketMQ unit in TriMQ units."""

    setting: str
    unit: int = 1


_DYNAMIC_SETTINGS = {
    "autoCreateTopicEnable": _DynamicSetting("auto_create_topics"),
    "deleteWhen": _DynamicSetting("delete_when"),
    "fileReservedTime": _DynamicSetting("retention_ms", _HOUR_MS),
    "maxMessageSize": _DynamicSetting("message_bytes"),
    "transactionCheckInterval": _DynamicSetting("transaction_check_interval_ms"),
    "transactionCheckMax": _DynamicSetting("transaction_check_max"),
    "transactionTimeOut": _DynamicSetting("transaction_timeout_ms"),
}


def _config(context: Context) -> dict[str, str]:
    settings, identity = context.services.settings, context.services.identity
    live = {name: _shown(getattr(settings, each.setting), each.unit) for name, each in _DYNAMIC_SETTINGS.items()}
    return {
        **live,
        "autoCreateSubscriptionGroup": "true",
        "brokerClusterName": identity.cluster_name,
        "brokerId": "0",
        "brokerIP1": identity.address.rpartition(":")[0],
        "brokerName": identity.broker_name,
        "brokerPermission": "6",
        "brokerRole": "ASYNC_MASTER",
        "commitIntervalCommitLog": str(settings.commit_interval_ms),
        "defaultTopicQueueNums": str(settings.default_queues),
        "enablePropertyFilter": "true",
        "flushDiskType": "SYNC_FLUSH" if context.services.sending.is_synced else "ASYNC_FLUSH",
        "listenPort": identity.address.rpartition(":")[2],
        "longPollingEnable": "true",
        "mappedFileSizeCommitLog": str(settings.commit_file_bytes),
        "mappedFileSizeConsumeQueue": "6000000",
        "messageDelayLevel": settings.delay_levels,
        "osPageCacheBusyTimeOutMills": str(settings.busy_after_ms),
        "recallMessageEnable": "true",
        "timerMaxDelaySec": str(settings.max_delay_ms // 1000),
        "traceTopicEnable": "true",
        "transientStorePoolEnable": "true" if context.services.sending.is_pooled else "false",
    }


def _shown(value: bool | int | str, unit: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value // unit)


def get_config(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)
    text = "".join(f"{name}={value}\n" for name, value in sorted(_config(context).items()))
    changes, changed_ms = context.services.config_changes
    version = {"counter": changes, "stateVersion": 0, "timestamp": changed_ms or context.services.started_ms}
    return reply(command, fields={"version": msgspec.json.encode(version).decode()}, body=text.encode())


def update_config(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)
    known = _config(context)
    changes: dict[str, Any] = {}
    for name, value in read_property_lines(command).items():
        if name in _PATHS:
            raise RemotingRefusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if known.get(name) == value:
            continue
        live = _DYNAMIC_SETTINGS.get(name)
        if live is None:
            reason = f"{name[:100]} cannot be set to {value[:100]!r} while the broker runs"
            raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)
        changes[live.setting] = _read(name, live, value)
    if changes:
        _apply(context, changes)
    return reply(command)


def _read(name: str, live: _DynamicSetting, text: str) -> bool | int | str:
    """Converts to the declared type of the setting and checks its limits."""
    kind = _kinds()[live.setting]
    try:
        value = msgspec.convert(text, kind, strict=False)
        return value if isinstance(value, str | bool) else msgspec.convert(value * live.unit, kind)
    except msgspec.ValidationError as error:
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, f"{name} cannot be {text[:100]!r}: {error}") from None


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(RocketMQSettings, include_extras=True)


def _apply(context: Context, changes: dict[str, Any]) -> None:
    services, now_ms = context.services, context.services.clock.message.now_ms()
    settings = services.settings = msgspec.structs.replace(services.settings, **changes)
    context.commit_log.messages.message_bytes = settings.message_bytes
    context.commit_log.admin.set_retention(context.caller, settings.retention_ms, settings.delete_when)
    services.sending.transactions.update_check_settings(check_back_settings(settings))
    named = {"settings": sorted(changes)}
    context.commit_log.admin.record_change(context.caller, "alter-configs", "broker", "rocketmq", **named)
    services.config_changes = (services.config_changes[0] + 1, now_ms)
