"""Channels between the processes of a job: unrolls to the learner, weights to the actors."""

from lamarckian_cli.transport.channel import (
    Publisher,
    Receiver,
    Sender,
    Subscriber,
    bind_gather,
    bind_weights,
    connect_gather,
    connect_weights,
)
from lamarckian_cli.transport.codec import LIMITS, PROTOCOL, Limits, Message, MessageError, decode, encode
from lamarckian_cli.transport.keys import JobKeys

__all__ = [
    "LIMITS",
    "PROTOCOL",
    "JobKeys",
    "Limits",
    "Message",
    "MessageError",
    "Publisher",
    "Receiver",
    "Sender",
    "Subscriber",
    "bind_gather",
    "bind_weights",
    "connect_gather",
    "connect_weights",
    "decode",
    "encode",
]
