"""The keys of one job: who may speak on its channels, and which job they belong to.

Binding ends own the server pair, connecting ends the client pair; CurveZMQ encrypts and
authenticates both directions. Keys are made once a job and are never written to disk here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import zmq
from zmq.utils import z85

from lamarckian_cli.errors import TransportError


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKeys:
    """Curve25519 keys as Z85 text of 40 characters, and the job's random id. Secrets stay out of `repr`."""

    job: str
    server_public: str
    client_public: str
    client_secret: str = field(repr=False)
    server_secret: str = field(repr=False)  # empty for those who only connect

    @classmethod
    def make(cls) -> JobKeys:
        """Fresh keys for a new job."""
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        return cls(
            job=secrets.token_hex(16),
            server_public=server_public.decode("ascii"),
            server_secret=server_secret.decode("ascii"),
            client_public=client_public.decode("ascii"),
            client_secret=client_secret.decode("ascii"),
        )

    def for_clients(self) -> JobKeys:
        """What a connecting process needs: everything but the secret that lets one pose as the server."""
        return replace(self, server_secret="")

    def to_dict(self) -> dict[str, str]:
        """All fields, secrets included: hand it over on encrypted channels alone."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, str]) -> JobKeys:
        """The inverse of `to_dict`; TransportError if a field is missing, unknown or not a key."""
        names = ("job", "server_public", "client_public", "client_secret", "server_secret")
        if set(values) != set(names):
            raise TransportError(f"job keys have the fields {sorted(values)}; expected {sorted(names)}")
        for name in names[1:]:
            if not (name == "server_secret" and values[name] == ""):
                _check_key(name, values[name])
        if not isinstance(values["job"], str) or not values["job"]:
            raise TransportError("job keys without a job id; make them with JobKeys.make()")
        return cls(**{name: values[name] for name in names})


def z85_bytes(key: str) -> bytes:
    """The 32 bytes of a key written as Z85 text."""
    raw: bytes = z85.decode(key)
    return raw


def _check_key(name: str, text: object) -> None:
    """The value itself stays out of the message: it may be a secret."""
    try:
        valid = isinstance(text, str) and len(text) == 40 and len(z85_bytes(text)) == 32
    except (ValueError, KeyError, UnicodeError):
        valid = False
    if not valid:
        raise TransportError(f"{name} of the job keys is not a Curve key; make them with JobKeys.make()")
