"""Settings of the section `tls`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.kinds import Path


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    mode: Annotated[
        Literal["off", "optional", "required"],
        Meta(
            description="optional: listeners serve clients with and without TLS, distinguished by the first byte. "
            "required: only clients with TLS."
        ),
    ] = "optional"
    certificate: Annotated[
        Path | None,
        Meta(
            description="Certificate of the broker with its intermediate certificates, as a PEM file. Without it the "
            "broker generates a self-signed one for RocketMQ's clients, which needs the extra `tls`."
        ),
    ] = None
    key: Annotated[Path | None, Meta(description="Private key of the certificate, as a PEM file.")] = None
