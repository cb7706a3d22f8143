"""Reads command bodies: JSON and Java properties. A body that cannot be parsed is refused."""

from __future__ import annotations

from typing import Any

from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.lenient_json import BadJson, read_json
from trimq.wire.remoting import Command


def read_object(command: Command) -> dict[str, Any]:
    try:
        data = read_json(command.body)
    except BadJson as error:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "the body is not a JSON object")
    return data


def read_property_lines(command: Command) -> dict[str, str]:
    """Reads Java properties: `name=value` on each line."""
    try:
        lines = command.body.decode().splitlines()
    except UnicodeDecodeError:
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "the body is not UTF-8 text") from None
    pairs = [line.partition("=") for line in map(str.strip, lines) if line and line[0] not in "#!"]
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_list(value: object) -> list[dict[str, Any]]:
    """Returns the list of objects; None is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "expected a list of JSON objects")
    return value
