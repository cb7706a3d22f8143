"""Signatures as the broker checks them."""

from __future__ import annotations

import hashlib
import hmac

from trimq.client.credentials import Credentials
from trimq.protocols.rocketmq.wire.signatures import read_signed
from trimq.wire.remoting import Command


def test_the_broker_finds_the_signed_content_and_the_right_signature() -> None:
    credentials = Credentials("AK", "secret")
    fields = credentials.sign({"b": "orders", "a": "grüppe"}, b"body")
    signed = read_signed(Command(310, 1, 0, 513, "PYTHON", None, b"body", _fields=fields))
    assert signed is not None
    assert signed.access_key == "AK"
    assert signed.content == b"AK" + "grüppe".encode() + b"orders" + b"body"
    assert signed.signature == hmac.new(b"secret", signed.content, hashlib.sha1).digest()


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(Credentials("AK", "secret"))
