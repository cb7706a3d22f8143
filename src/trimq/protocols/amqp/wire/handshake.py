"""Login and tuning of a new connection: SASL responses, capabilities and limits. Pure."""

from __future__ import annotations

from typing import NamedTuple

from trimq.formats.amqp_content.field_tables import BadField, FieldTable, Value, read_entries
from trimq.protocols.amqp.methods import ConnectionTune, ConnectionTuneOk
from trimq.protocols.amqp.wire.codes import SilentClose

MECHANISMS = b"PLAIN AMQPLAIN"
EXTERNAL = "EXTERNAL"
MIN_FRAME_MAX = 4096

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)

# Clients such as kombu and Celery choose features by product and version.
PRODUCT, VERSION = "RabbitMQ", "4.3.0"


class Login(NamedTuple):
    """`password` None: the certificate of the client is its proof."""

    user: str
    password: str | None


def offered_mechanisms(has_certificate: bool) -> bytes:
    return MECHANISMS + f" {EXTERNAL}".encode() if has_certificate else MECHANISMS


def server_properties(cluster_name: str) -> FieldTable:
    capabilities: dict[str, Value] = dict.fromkeys(CAPABILITIES, True)
    return {
        "capabilities": capabilities,
        "cluster_name": cluster_name,
        "copyright": "The TriMQ authors",
        "information": "This is TriMQ, which speaks as this product and version do.",
        "platform": "Python",
        "product": PRODUCT,
        "version": VERSION,
    }


def read_login(mechanism: str, response: bytes, certificate_user: str | None = None) -> Login:
    """Reads a SASL response. Raises SilentClose for a mechanism that was not offered or a malformed response."""
    if mechanism == EXTERNAL and certificate_user is not None:
        return Login(certificate_user, None)  # as in RabbitMQ, whatever the response says
    if mechanism == "PLAIN":
        parts = response.split(b"\0")
        if len(parts) != 3:
            raise SilentClose("malformed SASL PLAIN response")
        return Login(_text(parts[1]), _text(parts[2]))
    if mechanism == "AMQPLAIN":
        try:
            table = read_entries(response, 0, len(response))
        except (BadField, IndexError) as error:
            raise SilentClose(f"malformed AMQPLAIN response: {error}") from None
        user, password = table.get("LOGIN"), table.get("PASSWORD")
        if isinstance(user, str) and isinstance(password, str):
            return Login(user, password)
        raise SilentClose("AMQPLAIN response without LOGIN and PASSWORD")
    raise SilentClose(f"unsupported SASL mechanism {mechanism!r}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def has_capability(client_properties: FieldTable, name: str) -> bool:
    capabilities = client_properties.get("capabilities")
    return isinstance(capabilities, dict) and capabilities.get(name) is True


def check_tuning(offered: ConnectionTune, chosen: ConnectionTuneOk) -> None:
    """Checks that the client chose at most the offered limits, and not "unlimited". Raises SilentClose otherwise."""
    for name in ("channel_max", "frame_max"):
        offer, choice = getattr(offered, name), getattr(chosen, name)
        if offer and (choice == 0 or choice > offer):
            raise SilentClose(f"{name} {choice} chosen by the client, but {offer} was offered")
    if chosen.frame_max < MIN_FRAME_MAX:
        raise SilentClose(f"frame_max {chosen.frame_max} chosen by the client, but {MIN_FRAME_MAX} is the minimum")
