"""The settings of the section `tls`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.kinds import Path


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    mode: Annotated[
        Literal["off", "optional", "required"],
        Meta(
            description="optional: listeners serve clients that encrypt and clients that do not, and tell them apart "
            "by their first byte. required: only those that do."
        ),
    ] = "optional"
    certificate: Annotated[
        Path | None,
        Meta(
            description="The certificate that the broker shows, and those between it and its authority, as a PEM file. "
            "Without one it makes its own for RocketMQ's clients, which needs the extra `tls`."
        ),
    ] = None
    key: Annotated[Path | None, Meta(description="The private key of the certificate, as a PEM file.")] = None
