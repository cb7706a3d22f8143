"""TLS certificate of the broker: the configured one, or a self-signed one. Knows no connection."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec

from trimq.config import Tls
from trimq.errors import StartupError
from trimq.storage.io.memfd import memfd_path

_ALPN = "h2"  # only gRPC clients use ALPN
_LASTS = timedelta(days=3650)
_HOSTS = ("127.0.0.1", "::1")
_UNASKING = "rocketmq"


class Certificates:
    """Provides the TLS context for all listeners. Creates the self-signed certificate when the first client needs
    it."""

    def __init__(self, settings: Tls, now_ms: Callable[[], int]) -> None:
        """StartupError: the TLS settings cannot be used."""
        self._now_ms = now_ms
        self.is_required = settings.mode == "required"
        self._context: ssl.SSLContext | None = None
        self._is_given = settings.certificate is not None and settings.mode != "off"
        self._can_make_one = find_spec("cryptography") is not None
        if settings.mode == "off":
            self._can_make_one = False
        elif settings.certificate is not None and settings.key is not None:
            self._context = _load(settings.certificate, settings.key)
        elif settings.certificate is not None or settings.key is not None:
            raise StartupError("tls.certificate and tls.key must be set together")
        elif self.is_required and not self._can_make_one:
            raise StartupError('tls.mode = "required" needs tls.certificate and tls.key, or pip install "trimq[tls]"')

    def apply_to_listener(self, listener: str) -> bool:
        """True if the listener offers TLS. A self-signed certificate is offered to RocketMQ clients, which do not
        verify it; to all others only if `tls.mode` is "required"."""
        if self._is_given or self.is_required:
            return True
        return self._can_make_one and listener.startswith(_UNASKING)

    def context(self) -> ssl.SSLContext:
        if self._context is None:
            with memfd_path(_self_signed(self._now_ms())) as path:
                self._context = _load(path, path)
        return self._context


def _load(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols([_ALPN])
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
