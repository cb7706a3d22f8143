"""TLS certificate of the broker: the configured one, or a self-signed one. Knows no connection."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Protocol

from trimq.config import Tls
from trimq.errors import StartupError
from trimq.storage.io.memfd import memfd_path

# Protocol that a listener selects of those that a client offers (ALPN). Clients of the other listeners offer none.
_ALPN = {"http": "http/1.1", "rocketmq_grpc": "h2"}
_LASTS = timedelta(days=3650)
_HOSTS = ("127.0.0.1", "::1")
_UNASKING = "rocketmq"


class ListenerCertificate(Protocol):
    """TLS of one listener."""

    @property
    def is_required(self) -> bool: ...

    def context(self) -> ssl.SSLContext: ...


class Certificates:
    """Provides the TLS contexts of all listeners. Creates the self-signed certificate when the first client needs
    it."""

    def __init__(self, settings: Tls, now_ms: Callable[[], int]) -> None:
        """StartupError: the TLS settings cannot be used."""
        self._now_ms = now_ms
        self.is_required = settings.mode == "required"
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._is_given = settings.certificate is not None and settings.mode != "off"
        self._can_make_one = find_spec("cryptography") is not None
        if settings.mode == "off":
            self._can_make_one = False
        elif settings.certificate is not None and settings.key is not None:
            self._contexts = _load_all(settings.certificate, settings.key)
        elif settings.certificate is not None or settings.key is not None:
            raise StartupError("tls.certificate and tls.key must be set together")
        elif self.is_required and not self._can_make_one:
            raise StartupError('tls.mode = "required" needs tls.certificate and tls.key, or pip install "trimq[tls]"')

    def of_listener(self, listener: str) -> ListenerCertificate | None:
        """Returns None if the listener offers no TLS. A self-signed certificate is offered to RocketMQ clients, which
        do not verify it; to all others only if `tls.mode` is "required"."""
        is_unasked = self._can_make_one and listener.startswith(_UNASKING)
        if not (self._is_given or self.is_required or is_unasked):
            return None
        return _ListenerCertificate(self, _ALPN.get(listener, ""))

    def context(self, protocol: str) -> ssl.SSLContext:
        """Returns the context that selects this protocol, or none if it is empty."""
        if not self._contexts:
            with memfd_path(_self_signed(self._now_ms())) as path:
                self._contexts = _load_all(path, path)
        return self._contexts[protocol]


class _ListenerCertificate:
    def __init__(self, certificates: Certificates, protocol: str) -> None:
        self._certificates = certificates
        self._protocol = protocol
        self.is_required = certificates.is_required

    def context(self) -> ssl.SSLContext:
        return self._certificates.context(self._protocol)


def _load_all(certificate: str, key: str) -> dict[str, ssl.SSLContext]:
    return {protocol: _load(certificate, key, protocol) for protocol in ("", *_ALPN.values())}


def _load(certificate: str, key: str, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if protocol:
        context.set_alpn_protocols([protocol])
    try:
        context.load_cert_chain(certificate, key)
    except FileNotFoundError as error:
        raise StartupError(f"tls: {certificate} or {key} does not exist") from error
    except (OSError, ValueError) as error:  # an SSLError is an OSError too
        raise StartupError(f"tls: {certificate} and {key} cannot be used: {error.args[-1]}") from error
    return context


def _self_signed(now_ms: int) -> bytes:
    """Returns a self-signed certificate and its key as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "trimq")])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    hosts = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(host)) for host in _HOSTS)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + private
