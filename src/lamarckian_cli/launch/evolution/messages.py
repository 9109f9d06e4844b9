"""Candidates and their results as messages of the exchange between collector and workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import TransportError
from lamarckian_cli.launch.evolution.evaluation import Failure
from lamarckian_cli.problems.evaluator import Results
from lamarckian_cli.transport.codec import Message

WORK, RESULTS, FAILURE = "work", "results", "failure"
_ARRAYS = ("constraints", "measures", "cost")


def pack_work(order: int, genomes: Genomes, seeds: np.ndarray) -> Message:
    """N genomes to evaluate; `order` comes back with their results."""
    return Message(WORK, {"order": order, "parts": list(genomes)}, (seeds, *genomes.values()))


def unpack_work(message: Message) -> tuple[int, Genomes, np.ndarray]:
    """Order, genomes and seeds; genomes are copies, which evaluators may write to."""
    header = _header(message, WORK, ("order", "parts"))
    genomes = dict(zip(header["parts"], (a.copy() for a in message.arrays[1:]), strict=True))
    return int(header["order"]), genomes, message.arrays[0]


def pack_results(order: int, results: Results | Failure, seconds: float) -> Message:
    """What became of an order."""
    header: dict[str, Any] = {"order": order, "seconds": seconds}
    if isinstance(results, Failure):
        return Message(FAILURE, {**header, "error": results.error, "trace": results.trace})
    there = [name for name in _ARRAYS if getattr(results, name) is not None]
    genomes = results.genomes or {}
    header |= {"there": there, "parts": list(genomes)}
    arrays = (results.objectives, *(getattr(results, name) for name in there), *genomes.values())
    return Message(RESULTS, header, arrays)


def unpack_results(message: Message) -> tuple[int, Results | Failure, float]:
    """Order, results and the seconds that they took."""
    if message.kind == FAILURE:
        header = _header(message, FAILURE, ("order", "seconds", "error", "trace"))
        return int(header["order"]), Failure(error=header["error"], trace=header["trace"]), header["seconds"]
    header = _header(message, RESULTS, ("order", "seconds", "there", "parts"))
    names = ["objectives", *header["there"]]
    named = dict(zip(names, message.arrays[: len(names)], strict=True))
    genomes = dict(zip(header["parts"], message.arrays[len(names) :], strict=True))
    return int(header["order"]), Results(**named, genomes=genomes or None), header["seconds"]


def _header(message: Message, kind: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if message.kind != kind or not set(keys) <= set(message.header):
        raise TransportError(
            f"a message of kind {message.kind!r:.40}; {kind!r} with {', '.join(keys)} was expected"
        )
    return message.header
