"""Signatures of RocketMQ requests: what is signed, and where client, key and signature are. Knows no secret."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from trimq.model import Buffer
from trimq.wire.remoting import Command

ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"

AUTHORIZATION, DATE_TIME = "authorization", "x-mq-date-time"

_ALGORITHM = "mqv2-hmac-sha1"
_LAST_UNSIGNED_QUERY_FLAG = 399  # client version 4.9.3, which adds this field to a request that is already signed
_QUERY_FLAG = "_UNIQUE_KEY_QUERY"


class BadSignature(ValueError):
    """The request has no signature in the expected form."""


class SignedCommand(NamedTuple):
    access_key: str
    signature: bytes
    content: bytes


def read_signed(command: Command) -> SignedCommand | None:
    """Returns what a remoting command is signed with: the values of its fields in the order of their names, then the
    body. None if it is not signed. Raises BadSignature or BadHeader."""
    fields = command.fields
    access_key = fields.get(ACCESS_KEY)
    if not access_key:  # the C++ client without keys sends an empty one
        return None
    if command.version <= _LAST_UNSIGNED_QUERY_FLAG and _QUERY_FLAG in fields:
        fields = {name: value for name, value in fields.items() if name != _QUERY_FLAG}
    return _signed(access_key, fields, command.body)


def read_signed_fields(fields: dict[str, str], body: Buffer) -> SignedCommand | None:
    """Same as `read_signed` for a command whose fields are read already, and which is no query. None also if the
    signature is not base64."""
    access_key = fields.get(ACCESS_KEY)
    if not access_key:
        return None
    try:
        return _signed(access_key, fields, body)
    except BadSignature:
        return None


def _signed(access_key: str, fields: dict[str, str], body: Buffer) -> SignedCommand:
    signed = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE])
    content = signed.encode("utf-8", "surrogatepass") + body
    return SignedCommand(access_key, _base64(fields.get(SIGNATURE, "")), content)


class Authorization(NamedTuple):
    """`authorization` header of a gRPC call. What is signed is the header `x-mq-date-time`."""

    access_key: str
    signature: bytes


def read_authorization(header: str) -> Authorization:
    """Reads `MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=x-mq-date-time, Signature=HEX`. Raises BadSignature."""
    algorithm, _, rest = header.strip().partition(" ")
    if algorithm.lower() != _ALGORITHM:
        raise BadSignature("the authorization is not MQv2-HMAC-SHA1")
    items = {}
    for item in rest.split(","):
        name, equals, value = item.strip().partition("=")
        if not equals:
            raise BadSignature("an item of the authorization has no value")
        items[name] = value
    access_key = items.get("Credential", "").partition("/")[0]
    if not access_key:
        raise BadSignature("the authorization names no credential")
    try:
        signature = bytes.fromhex(items.get("Signature", ""))
    except ValueError:
        raise BadSignature("the signature is not hexadecimal") from None
    return Authorization(access_key, signature)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadSignature("the signature is not base64") from None
