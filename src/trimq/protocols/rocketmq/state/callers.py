"""Callers of the commands of one remoting connection. RocketMQ signs each request, so each has its own caller."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from trimq.core.security.signatures import Signatures
from trimq.model import Buffer, Caller
from trimq.protocols.rocketmq.wire.signatures import ACCESS_KEY, BadSignature, read_signed, read_signed_fields
from trimq.wire.remoting import Command


class HasCaller(Protocol):
    caller: Caller


class CommandCallers:
    """Before logins are required, every command is the connection's own (`anonymous`), signed or not."""

    def __init__(self, signatures: Signatures, unsigned: Caller) -> None:
        self._signatures = signatures
        self._unsigned = unsigned
        self._known: Caller | None = None

    def identify(self, context: HasCaller, command: Command) -> None:
        """Makes the signer of the command, or `anonymous`, the caller of the context. Raises LoginFailed."""
        if self._signatures.access.is_enforced:
            context.caller = self._caller_of(command, context.caller.client_id)

    def _caller_of(self, command: Command, client_id: str) -> Caller:
        unsigned = self._unsigned
        try:
            signed = read_signed(command)
        except BadSignature as error:
            user = command.fields.get(ACCESS_KEY, "")
            self._signatures.failed(user, unsigned.address, unsigned.protocol, str(error))
        if signed is None:
            return dataclasses.replace(unsigned, client_id=client_id)
        user = signed.access_key
        self._signatures.check(user, signed.signature, signed.content, unsigned.address, unsigned.protocol)
        return self._caller(user, client_id)

    def signer(self, fields: dict[str, str], body: Buffer, client_id: str) -> Caller | None:
        """Fast path of `identify` for a command with these fields, which is no query. Returns None if the command is
        not signed, or wrongly: then `identify` decides."""
        signed = read_signed_fields(fields, body)
        if signed is None or not self._signatures.is_right(*signed, self._unsigned.address):
            return None
        return self._caller(signed.access_key, client_id)

    def _caller(self, user: str, client_id: str) -> Caller:
        unsigned, known = self._unsigned, self._known
        if known is None or known.principal != user:
            known = self._known = dataclasses.replace(unsigned, principal=user, client_id=client_id)
            self._signatures.succeeded(user, unsigned.address, unsigned.protocol)
        elif known.client_id != client_id:
            known = self._known = dataclasses.replace(known, client_id=client_id)
        return known
