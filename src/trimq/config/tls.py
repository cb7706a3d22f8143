"""Settings of the section `tls`, and what they mean for each listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trimq.config.kinds import HOUR_MS, INT32, Path, Text

ListenerMode = Literal["off", "optional", "required"]
ClientCertificates = Literal["none", "wanted", "needed"]

# The VIP channel has the same clients as the broker.
_SETTINGS_OF = {"rocketmq_vip": "rocketmq_broker"}
LISTENERS = ("kafka", "amqp", "http", "rocketmq", "rocketmq_broker", "rocketmq_grpc")


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    mode: Annotated[
        ListenerMode | None,
        Meta(
            description="off: no TLS. optional: listeners serve clients with and without TLS, distinguished by the "
            "first byte. required: only clients with TLS. Not set: required with tls.certificate, otherwise optional."
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        Meta(
            description="Certificate of the broker with its intermediate certificates, as a PEM file. Without it the "
            "broker generates a self-signed one for RocketMQ's clients, which needs the extra `tls`."
        ),
    ] = None
    key: Annotated[
        Path | None,
        Meta(
            description="Private key of the certificate, as a PEM file without a password that users other than its "
            "owner and group may not read."
        ),
    ] = None
    client_certificates: Annotated[
        ClientCertificates,
        Meta(
            description="none: clients are not asked for a certificate. wanted: a client may show one, which must be "
            "valid. needed: a client without a valid certificate is not connected."
        ),
    ] = "none"
    client_ca: Annotated[
        Path | None, Meta(description="Certificates of the authorities that issue client certificates, as a PEM file.")
    ] = None
    client_crl: Annotated[
        Path | None,
        Meta(
            description="Revocation lists (CRL) of all authorities in tls.client_ca, as a PEM file. While a list is "
            "missing or has expired, the certificates of its authority are refused."
        ),
    ] = None
    principal_from: Annotated[
        Literal["distinguished-name", "common-name", "dns", "email", "uri"],
        Meta(
            description="Part of a client certificate that names the user: the subject (CN=alice,O=Example), its "
            "common name, or the first subject alternative name of this kind."
        ),
    ] = "distinguished-name"
    principal_rules: Annotated[
        Text,
        Meta(
            description="Rules that turn tls.principal_from into the name of a user, as in Kafka's "
            "ssl.principal.mapping.rules: RULE:pattern/replacement/ with L or U for lower or upper case, or DEFAULT, "
            "separated by commas; the first whose pattern matches as a whole counts. If none does, the certificate "
            "names nobody."
        ),
    ] = "DEFAULT"
    handshake_ms: Annotated[
        int, Meta(ge=100, le=HOUR_MS, description="A TLS handshake that takes longer than this closes the connection.")
    ] = 10_000
    unfinished_handshakes: Annotated[
        int,
        Meta(
            ge=1,
            le=INT32,
            description="Maximum number of unfinished TLS handshakes of a listener; beyond it, the oldest of the "
            "address that has most is closed.",
        ),
    ] = 1000
    kafka_mode: Annotated[ListenerMode | None, Meta(description="tls.mode for Kafka clients only.")] = None
    amqp_mode: Annotated[ListenerMode | None, Meta(description="tls.mode for AMQP clients only.")] = None
    http_mode: Annotated[ListenerMode | None, Meta(description="tls.mode for the HTTP port only.")] = None
    rocketmq_mode: Annotated[ListenerMode | None, Meta(description="tls.mode for RocketMQ's name server only.")] = None
    rocketmq_broker_mode: Annotated[
        ListenerMode | None, Meta(description="tls.mode for RocketMQ's broker and its VIP channel only.")
    ] = None
    rocketmq_grpc_mode: Annotated[
        ListenerMode | None, Meta(description="tls.mode for RocketMQ's gRPC clients only.")
    ] = None
    kafka_client_certificates: Annotated[
        ClientCertificates | None, Meta(description="tls.client_certificates for Kafka clients only.")
    ] = None
    amqp_client_certificates: Annotated[
        ClientCertificates | None, Meta(description="tls.client_certificates for AMQP clients only.")
    ] = None
    http_client_certificates: Annotated[
        ClientCertificates | None, Meta(description="tls.client_certificates for the HTTP port only.")
    ] = None
    rocketmq_client_certificates: Annotated[
        ClientCertificates | None, Meta(description="tls.client_certificates for RocketMQ's name server only.")
    ] = None
    rocketmq_broker_client_certificates: Annotated[
        ClientCertificates | None,
        Meta(description="tls.client_certificates for RocketMQ's broker and its VIP channel only."),
    ] = None
    rocketmq_grpc_client_certificates: Annotated[
        ClientCertificates | None, Meta(description="tls.client_certificates for RocketMQ's gRPC clients only.")
    ] = None

    def mode_of(self, listener: str) -> ListenerMode:
        own: ListenerMode | None = getattr(self, f"{_SETTINGS_OF.get(listener, listener)}_mode", None)
        return own or self.mode or ("optional" if self.certificate is None else "required")

    def client_certificates_of(self, listener: str) -> ClientCertificates:
        own: ClientCertificates | None = getattr(
            self, f"{_SETTINGS_OF.get(listener, listener)}_client_certificates", None
        )
        return own or self.client_certificates


def find_contradictions(tls: Tls) -> Iterator[str]:
    """Yields conflicts between settings that are valid on their own."""
    if (tls.certificate is None) != (tls.key is None):
        yield "tls.certificate and tls.key must be set together"
    asking = [name for name in LISTENERS if tls.client_certificates_of(name) != "none"]
    if asking and tls.client_ca is None:
        yield "client certificates are asked for, but tls.client_ca does not name the file of their authorities"
    if tls.client_ca is not None and not asking:
        yield "tls.client_ca is set, but no listener asks for certificates: set tls.client_certificates"
    if tls.client_crl is not None and tls.client_ca is None:
        yield "tls.client_crl is set without tls.client_ca"
    for name in asking:
        mode, wish = tls.mode_of(name), tls.client_certificates_of(name)
        if mode == "off" or (wish == "needed" and mode != "required"):
            yield f'{name}: certificates of clients are {wish}, but TLS is {mode}: set tls.{name}_mode = "required"'
