"""Signers of gRPC calls: each call carries its own signature in its metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from trimq.core.security.signatures import Signatures
from trimq.errors import LoginFailed
from trimq.model import Caller
from trimq.protocols.rocketmq.wire.signatures import AUTHORIZATION, DATE_TIME, BadSignature, read_authorization

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class CallSigners:
    """`window_ms`: how far the time that a call signs may be from ours; 0: not checked, as in Apache RocketMQ."""

    def __init__(self, signatures: Signatures, window_ms: int, now_ms: Callable[[], int]) -> None:
        self._signatures = signatures
        self._now_ms = now_ms
        self.window_ms = window_ms

    @property
    def revision(self) -> int:
        """A caller that was found at this revision is still the same, unless there is a window of time."""
        return self._signatures.revision

    def signer(self, unsigned: Caller, metadata: Mapping[str, str]) -> Caller:
        """Returns the caller with the signer of a call as its principal, or `unsigned` if the call is not signed.
        Before logins are required, signatures are ignored. Raises LoginFailed."""
        header = metadata.get(AUTHORIZATION)
        if not header or not self._signatures.is_login_required:
            return unsigned
        time = metadata.get(DATE_TIME, "")
        try:
            access_key, signature = read_authorization(header)
        except BadSignature as error:
            self._signatures.failed("", unsigned.address, unsigned.protocol, str(error))
        self._signatures.check(access_key, signature, time.encode(), unsigned.address, unsigned.protocol)
        if self.window_ms and not self._is_recent(time):
            reason = f"{DATE_TIME} {time} is more than {self.window_ms} ms away"
            self._signatures.failed(access_key, unsigned.address, unsigned.protocol, reason)
        return dataclasses.replace(unsigned, principal=access_key)

    def opened(self, caller: Caller) -> None:
        """Counts the login of a client that opens its stream."""
        if self._signatures.is_login_required:
            self._signatures.succeeded(caller.principal, caller.address, caller.protocol)

    def _is_recent(self, time: str) -> bool:
        try:
            signed = datetime.strptime(time, _TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            return False
        return abs((signed - _EPOCH) // _MILLISECOND - self._now_ms()) <= self.window_ms


def refusal_of(identify: Callable[[], Caller], unsigned: Caller) -> tuple[Caller, LoginFailed | None]:
    """Returns the signer, or a caller without any right and the refusal of its calls."""
    try:
        return identify(), None
    except LoginFailed as refusal:
        return dataclasses.replace(unsigned, principal=""), refusal
