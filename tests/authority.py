"""Certificate authority of a test: issues certificates, and revokes them."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._revoked: list[x509.Certificate] = []
        self._issued: dict[Path, x509.Certificate] = {}
        now = datetime.now(UTC)
        self._certificate = (
            self._builder(self._name, self._key, now - DAY, now + 10 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        """Its certificate, for others to trust."""
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        organization: str = "",
        is_expired: bool = False,
        alternative_names: tuple[x509.GeneralName, ...] = (),
        mode: int = 0o600,
    ) -> Path:
        """Returns a file with certificate and key. Servers of this machine may use it too."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        since, until = (now - 3 * DAY, now - 2 * DAY) if is_expired else (now - DAY, now + DAY)
        local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            self._builder(_name(name, organization), key, since, until)
            .add_extension(x509.SubjectAlternativeName([*alternative_names, *local]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / f"{name.replace('/', '_')}-{certificate.serial_number}.pem"
        path.touch(mode)
        path.chmod(mode)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
        self._issued[path] = certificate
        return path

    def revoke(self, path: Path) -> None:
        self._revoked.append(self._issued[path])

    def write_revocations(self, *, is_expired: bool = False) -> Path:
        now = datetime.now(UTC)
        until = now - DAY if is_expired else now + DAY
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - 2 * DAY).next_update(until)
        for revoked in self._revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(revoked.serial_number).revocation_date(now - DAY)
            builder = builder.add_revoked_certificate(entry.build())
        path = self._folder / "revoked.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
        )


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
