"""Codes 25 and 26: how the broker is set, under the names that a genuine broker has for it.

What a genuine broker changes while it runs, and we can as well, is changed by 25 and holds until the broker ends: the
settings that it was started with are not written. All of a request is changed, or nothing. What is so already is taken,
the rest refused: nothing is kept that has no effect."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from trimq.config import RocketMQ as RocketMQSettings
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.json_bodies import read_property_lines
from trimq.protocols.rocketmq.transactions.check_back import patience_of
from trimq.protocols.rocketmq.wire.codes import Code, Failure
from trimq.protocols.rocketmq.wire.remoting import Command
from trimq.protocols.rocketmq.wire.replies import reply

_PATHS = frozenset(("brokerConfigPath", "configBlackList", "rocketmqHome", "storePathRootDir", "storePathCommitLog"))
_HOUR_MS = 3_600_000


class _Live(NamedTuple):
    """What may change while the broker runs: our setting, and how many of ours one of theirs is."""

    setting: str
    unit: int = 1


_LIVE = {
    "autoCreateTopicEnable": _Live("auto_create_topics"),
    "deleteWhen": _Live("delete_when"),
    "fileReservedTime": _Live("retention_ms", _HOUR_MS),
    "maxMessageSize": _Live("message_bytes"),
    "transactionCheckInterval": _Live("transaction_check_interval_ms"),
    "transactionCheckMax": _Live("transaction_check_max"),
    "transactionTimeOut": _Live("transaction_timeout_ms"),
}


def _config(context: Context) -> dict[str, str]:
    settings, identity = context.shared.settings, context.shared.identity
    live = {name: _shown(getattr(settings, each.setting), each.unit) for name, each in _LIVE.items()}
    return {
        **live,
        "autoCreateSubscriptionGroup": "true",
        "brokerClusterName": identity.cluster_name,
        "brokerId": "0",
        "brokerIP1": identity.address.rpartition(":")[0],
        "brokerName": identity.broker_name,
        "brokerPermission": "6",
        "brokerRole": "ASYNC_MASTER",
        "defaultTopicQueueNums": str(settings.default_queues),
        "enablePropertyFilter": "true",
        "flushDiskType": "SYNC_FLUSH" if context.shared.is_synced else "ASYNC_FLUSH",
        "listenPort": identity.address.rpartition(":")[2],
        "longPollingEnable": "true",
        "mappedFileSizeCommitLog": str(settings.commit_file_bytes),
        "mappedFileSizeConsumeQueue": "6000000",
        "messageDelayLevel": settings.delay_levels,
        "recallMessageEnable": "true",
        "timerMaxDelaySec": str(settings.max_delay_ms // 1000),
        "traceTopicEnable": "true",
    }


def _shown(value: bool | int | str, unit: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value // unit)


def get_config(context: Context, command: Command) -> Reply:
    text = "".join(f"{name}={value}\n" for name, value in sorted(_config(context).items()))
    changes, changed_ms = context.shared.config_changes
    version = {"counter": changes, "stateVersion": 0, "timestamp": changed_ms or context.shared.started_ms}
    return reply(command, fields={"version": msgspec.json.encode(version).decode()}, body=text.encode())


def update_config(context: Context, command: Command) -> Reply:
    context.sharing.require_administrator(context.caller)
    known = _config(context)
    changes: dict[str, Any] = {}
    for name, value in read_property_lines(command).items():
        if name in _PATHS:
            raise Failure(Code.NO_PERMISSION, "Can not update config in black list.")
        if known.get(name) == value:
            continue
        live = _LIVE.get(name)
        if live is None:
            reason = f"{name[:100]} cannot be set to {value[:100]!r} while the broker runs"
            raise Failure(Code.INVALID_PARAMETER, reason)
        changes[live.setting] = _read(name, live, value)
    if changes:
        _apply(context, changes)
    return reply(command)


def _read(name: str, live: _Live, text: str) -> bool | int | str:
    """As the setting is declared, with its limits."""
    kind = _kinds()[live.setting]
    try:
        value = msgspec.convert(text, kind, strict=False)
        return value if isinstance(value, str | bool) else msgspec.convert(value * live.unit, kind)
    except msgspec.ValidationError as error:
        raise Failure(Code.INVALID_PARAMETER, f"{name} cannot be {text[:100]!r}: {error}") from None


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(RocketMQSettings, include_extras=True)


def _apply(context: Context, changes: dict[str, Any]) -> None:
    shared, now_ms = context.shared, context.shared.clock.message.now_ms()
    settings = shared.settings = msgspec.structs.replace(shared.settings, **changes)
    context.sharing.message_bytes = settings.message_bytes
    context.sharing.set_retention(context.caller, settings.retention_ms, settings.delete_when)
    shared.transactions.be_patient(patience_of(settings))
    shared.config_changes = (shared.config_changes[0] + 1, now_ms)
