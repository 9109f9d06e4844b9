"""How a connecting end joins a bound end, before and between the messages of a channel.

    connecting end                       bound end
    HELLO {protocol, job, role, ...} -->
                                     <-- WELCOME {turn, ...} or REFUSED {reason}
    DATA ...            <-- either way -->
                                     <-- ALIVE, now and then, which asks for nothing
    BYE                              -->

The values of a HELLO stay readable by every later protocol version, so that two ends of
different versions can tell each other so. After a lost connection the connecting end says
HELLO again, with the next `turn`: that is also how both ends agree on what was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from lamarckian_cli.transport.codec import PROTOCOL, Buffer, MessageError, no_extensions
from lamarckian_cli.transport.keys import JobKeys

# The first frame of everything on a socket.
HELLO, WELCOME, REFUSED, BYE = b"HELLO", b"WELCOME", b"REFUSED", b"BYE"
ALIVE = b"ALIVE"  # sent to learn whether the connection is still there
DATA, BUNDLE, TAKEN = b"DATA", b"BUNDLE", b"TAKEN"
BEGIN, PIECE, NEWS = b"BEGIN", b"PIECE", b"NEWS"

GATHER, WEIGHTS, EXCHANGE = "gather", "weights", "exchange"  # roles


def hello(role: str, keys: JobKeys | None, name: str, turn: int, extra: Mapping[str, Any]) -> bytes:
    """The values of a HELLO frame."""
    values = {"protocol": PROTOCOL, "job": job_id(keys), "role": role, "name": name, "turn": turn}
    return pack({**extra, **values})


def objection(values: Mapping[str, Any], role: str, keys: JobKeys | None) -> str:
    """Why the bound end does not want this peer; empty if it does."""
    if values.get("protocol") != PROTOCOL:
        return (
            f"it speaks protocol {PROTOCOL}, this side protocol {values.get('protocol')!r:.20}; "
            "install the same lamarckian-cli version on both"
        )
    if type(values.get("turn")) is not int:
        return "its HELLO counts no turn"
    if values.get("job") != job_id(keys):
        return "it belongs to another job; pass the keys and the address of the same job"
    if values.get("role") != role:
        return f"it is a {role} channel, not a {values.get('role')!r:.20} channel; check the address"
    return ""


def job_id(keys: JobKeys | None) -> str:
    return "" if keys is None else keys.job


def pack(values: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(dict(values))
    return packed


def unpack(frame: Buffer) -> dict[str, Any]:
    """The values of a control frame; MessageError if it is none."""
    try:
        values = msgpack.unpackb(frame, strict_map_key=True, ext_hook=no_extensions)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MessageError("garbled", f"a control frame that is not msgpack: {error}") from error
    if not isinstance(values, dict):
        raise MessageError("garbled", "a control frame that is not a map")
    return values
