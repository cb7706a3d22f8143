"""Reads what commands carry as JSON in their body. A body that cannot be read is refused, never guessed at."""

from __future__ import annotations

from typing import Any

from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json
from trimq.protocols.rocketmq.wire.remoting import Command


def read_object(command: Command) -> dict[str, Any]:
    try:
        data = read_json(command.body)
    except BadJson as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"a body that is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "a body that is no JSON object")
    return data


def read_property_lines(command: Command) -> dict[str, str]:
    """`name=value` on each line, as Java writes its properties."""
    try:
        lines = command.body.decode().splitlines()
    except UnicodeDecodeError:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "a body that is no text") from None
    pairs = [line.partition("=") for line in map(str.strip, lines) if line and line[0] not in "#!"]
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_list(value: object) -> list[dict[str, Any]]:
    """A list of objects; None counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "not a list of objects")
    return value
