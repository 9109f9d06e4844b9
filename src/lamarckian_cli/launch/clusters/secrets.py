"""What keeps strangers out of a cluster: Ray's token, and the certificates of its TLS.

Each cluster has a certificate authority of its own, and every machine a certificate by it.
Ray's TLS is mutual: who has no certificate of this authority is not talked to.
`python -m lamarckian_cli.launch.clusters.secrets SECRETS FOLDER NAME...` makes a machine's files
on that machine, for places where its address is known only there (Kubernetes, a cloud).
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=365)
CLOCKS_DIFFER = datetime.timedelta(hours=1)
LOOPBACK = ("127.0.0.1", "localhost")
TOKEN, AUTHORITY, AUTHORITY_KEY = "auth_token", "ca.pem", "ca-key.pem"  # names of files
CERTIFICATE, KEY = "cert.pem", "key.pem"
EXPORTS = "ray.sh"  # for a shell to read


def new_token() -> str:
    """A token for Ray: 256 random bits, in hexadecimal."""
    return secrets.token_hex(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority: its certificate and its key, both in PEM."""

    certificate: str
    key: str

    @classmethod
    def new(cls, name: str) -> Authority:
        """A new one, of a fresh key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(f"lamarck cluster {name}")
        signs_certificates = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(signs_certificates, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate=_certificate_pem(made), key=_key_pem(key))

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """The one whose files are in `folder`."""
        return cls(
            certificate=(folder / AUTHORITY).read_text(encoding="utf-8"),
            key=(folder / AUTHORITY_KEY).read_text(encoding="utf-8"),
        )

    def files(self) -> dict[str, str]:
        """Its files, by name; `read` takes them in again."""
        return {AUTHORITY: self.certificate, AUTHORITY_KEY: self.key}

    def issue(self, names: Sequence[str]) -> dict[str, str]:
        """The files of the machine of these addresses and host names: its certificate, its key, ours."""
        issuer = x509.load_pem_x509_certificate(self.certificate.encode()).subject
        signer = load_pem_private_key(self.key.encode(), password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        known_as = [_general_name(name) for name in dict.fromkeys([*names, *LOOPBACK])]
        made = (
            _builder(_subject(names[0]), issuer, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
            )
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .add_extension(x509.SubjectAlternativeName(known_as), critical=False)
            .sign(signer, hashes.SHA256())
        )
        return {CERTIFICATE: _certificate_pem(made), KEY: _key_pem(key), AUTHORITY: self.certificate}


def new_secrets(name: str) -> dict[str, str]:
    """The files of a new cluster: its authority and its token."""
    return {**Authority.new(name).files(), TOKEN: new_token()}


def ray_environment(folder: Path) -> dict[str, str]:
    """What points Ray to a machine's files in `folder`; to be set before Ray is imported."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / TOKEN),
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(folder / CERTIFICATE),
        "RAY_TLS_SERVER_KEY": str(folder / KEY),
        "RAY_TLS_CA_CERT": str(folder / AUTHORITY),
    }


def write_private(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` (name -> text) into `folder`, which its owner alone can enter, each all at once."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name, text in files.items():
        beside = folder / f".{name}.{os.getpid()}"
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(folder / name)


def main(arguments: Sequence[str]) -> None:
    """Make this machine's files by the authority and token of the first folder, in the second."""
    source, target = map(Path, arguments[:2])
    known_as = [name for name in (*arguments[2:], socket.gethostname()) if name]
    exports = [f"export {k}={shlex.quote(v)}\n" for k, v in ray_environment(target.absolute()).items()]
    token = (source / TOKEN).read_text(encoding="utf-8")
    files = {**Authority.read(source).issue(known_as), TOKEN: token, EXPORTS: "".join(exports)}
    write_private(target, files)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + VALID)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # the limit of X.509


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate_pem(made: x509.Certificate) -> str:
    return made.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
