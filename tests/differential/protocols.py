"""The protocols that are compared. Each has a module with the same four names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from differential.runs import Generator
from differential.sequences import Driver, Explained

NAMES = ("kafka", "rocketmq", "grpc", "amqp")

FIRST_SEQUENCES = {"kafka": 120, "rocketmq": 120, "grpc": 30}
"""Number of sequences, from seed 0 on, whose differences are all mended or explained; the tests keep them so. Longer
runs still find others."""


@dataclass(frozen=True)
class ComparedProtocol:
    """`brokers` starts TriMQ and the other broker with their data below a folder, and yields a driver for each. `page`
    is the document whose table has the reasons of `explained`."""

    generate: Generator
    brokers: Callable[[Path], AbstractContextManager[tuple[Driver, Driver]]]
    explained: Sequence[Explained]
    page: str


def load(name: str) -> ComparedProtocol:
    """Imports the module of a protocol, which may need packages that the others do not."""
    module = import_module(f"differential.{name}_sequences")
    return ComparedProtocol(module.generate, module.brokers, module.EXPLAINED, module.PAGE)
