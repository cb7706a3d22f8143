"""Imports point downwards, and time, files, threads, sockets and random numbers each have one door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.layers import FREE, SEES, layer_of, modules_under, violations

SOURCE = Path(__file__).parent.parent / "src"
MODULES = dict(modules_under(SOURCE))


def test_the_source_is_where_the_walk_looks() -> None:
    assert {"trimq.model", "trimq.errors", "trimq.clock", "trimq.storage.io.files"} <= MODULES.keys()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_keeps_to_its_layer_and_its_doors(module: str) -> None:
    path = MODULES[module]
    assert violations(module, path.read_text(), path.name == "__init__.py") == []


PLANTED = [
    # (module, source, text in the finding)
    (
        "trimq.core.queues.queue",
        "from trimq.core.commit_log.stream import MessageQueue",
        "must not see trimq.core.commit_log",
    ),
    ("trimq.core.queues.queue", "from trimq.core import commit_log", "must not see trimq.core.commit_log"),
    ("trimq.core.pop.pop", "from trimq.core.api.broker import Broker", "must not see trimq.core.api"),
    ("trimq.core.api.broker", "import trimq.core.assembly.core", "must not see trimq.core.assembly"),
    ("trimq.core.other", "import struct", "no place in the order of trimq.core"),
    (
        "trimq.storage.queue_log.log",
        "from trimq.storage.commit_log.log import CommitLog",
        "must not see trimq.storage.commit",
    ),
    (
        "trimq.storage.io.files",
        "from trimq.storage.group_commit.passes import Passes",
        "must not see trimq.storage.group",
    ),
    (
        "trimq.protocols.kafka.handlers.fetch",
        "import trimq.protocols.kafka.front_end",
        "must not see trimq.protocols.kafka",
    ),
    ("trimq.protocols.rocketmq.grpc.wire.codes", "import trimq.protocols.rocketmq.grpc.handlers", "must not see"),
    ("trimq.model", "import trimq.errors", "model must not see errors"),
    ("trimq.clock", "from trimq.config import Settings", "clock must not see config"),
    ("trimq.formats.kafka_batch.header", "from trimq import clock", "formats must not see clock"),
    (
        "trimq.storage.group_commit.journal",
        "from trimq.core.partitions.stream import Stream",
        "storage must not see core",
    ),
    ("trimq.core.partitions.topics", "from trimq.protocols import contract", "core must not see protocols.contract"),
    ("trimq.core.partitions.topics", "from ...server import session", "core must not see server"),
    ("trimq.core", "from ..server import session", "core must not see server"),
    (
        "trimq.core.partitions.topics",
        "def late():\n    import trimq.server.connection.session",
        "core must not see server",
    ),
    (
        "trimq.core.partitions.topics",
        "if TYPE_CHECKING:\n    from trimq.server import session",
        "core must not see server",
    ),
    ("trimq.core.partitions.topics", "import_module('trimq.server.connection.session')", "core must not see server"),
    ("trimq.core.partitions.topics", "importlib.import_module(f'trimq.server.{name}')", "core must not see server"),
    ("trimq.core.partitions.topics", "import_module(name)", "imports a module whose name is computed"),
    ("trimq.protocols.kafka.fetch", "from trimq.storage import files", "protocols.kafka must not see storage"),
    ("trimq.protocols.kafka.fetch", "from trimq.protocols.amqp import codes", "must not see protocols.amqp"),
    ("trimq.protocols.kafka.fetch", "from ..amqp.codes import CODES", "must not see protocols.amqp"),
    ("trimq.server.http.front_end", "from trimq.cli import main", "server must not see cli"),
    ("trimq.cli.topics", "from trimq.core import topics", "cli must not see core"),
    ("trimq.cli.storage", "from trimq.storage import recovery", "cli must not see storage"),
    ("trimq.testing.plugin", "from trimq.protocols.kafka import wire", "testing must not see protocols.kafka"),
    ("trimq.console.pages", "from trimq.server import http", "console must not see server"),
    ("trimq.client.producer", "from trimq.server import http", "client must not see server"),
    ("pyspark_trimq.source", "import trimq.server.http.front_end", "pyspark_trimq must not see server"),
    ("trimq", "from trimq.testing import Broker", "the package itself must not see testing"),
    ("trimq.common.things", "", "no layer of this name"),
    ("trimq.core.partitions.topics", "from trimq.common import things", "which is in no layer"),
    ("trimq.core.scheduling.timers", "import time", "time belongs to trimq.clock"),
    ("trimq.core.scheduling.timers", "from time import monotonic", "time belongs to trimq.clock"),
    ("trimq.cli.topics", "import time as t\nt.sleep(1)", "uses time.sleep"),
    ("trimq.core.scheduling.timers", "from datetime import datetime\ndatetime.now()", "uses datetime.datetime.now"),
    ("trimq.core.scheduling.timers", "import datetime as d\nd.datetime.now(d.UTC)", "uses datetime.datetime.now"),
    ("trimq.core.scheduling.waiters", "import asyncio\nasyncio.sleep(1)", "uses asyncio.sleep"),
    ("trimq.core.scheduling.waiters", "loop.call_later(1, wake)", "calls .call_later()"),
    ("trimq.core.scheduling.waiters", "asyncio.get_running_loop().time()", "calls .time()"),
    ("trimq.storage.tables.table", "import os\nos.rename(a, b)", "uses os.rename"),
    ("trimq.storage.tables.table", "from os import path", "uses os.path"),
    ("trimq.storage.tables.table", "import os\nlend(os)", "uses os: files"),
    ("trimq.storage.tables.table", "from os import *", "uses os.*"),
    ("trimq.storage.tables.table", "open('x')", "uses builtins.open"),
    ("trimq.storage.tables.table", "from pathlib import Path", "uses pathlib.Path"),
    ("trimq.storage.group_commit.flusher", "from threading import Lock", "a lock belongs to trimq.offload"),
    ("trimq.storage.io.memory_files", "import threading\nthreading.Thread()", "threads belongs to trimq.offload"),
    ("trimq.storage.group_commit.flusher", "import threading", "threads belongs to trimq.offload"),
    (
        "trimq.server.connection.session",
        "from concurrent.futures import ThreadPoolExecutor",
        "threads belongs to trimq.offload",
    ),
    ("trimq.server.connection.session", "loop.run_in_executor(None, work)", "calls .run_in_executor()"),
    ("trimq.core.api.broker", "import socket", "sockets belongs to trimq.server"),
    ("trimq.core.api.broker", "import asyncio\nasyncio.open_connection('h', 1)", "uses asyncio.open_connection"),
    ("trimq.core.partitions.topics", "import random\nrandom.random()", "uses random.random"),
    ("trimq.core.partitions.topics", "import random\nrandom.Random()", "makes an unseeded Random"),
    ("trimq.core.partitions.topics", "from uuid import uuid4", "uses uuid.uuid4"),
    ("trimq.core.partitions.topics", "import os\nos.urandom(16)", "the random source belongs to trimq.server"),
    ("trimq.formats.rocketmq_unit.unit", "import logging", "a codec must not use logging"),
    ("trimq.formats.rocketmq_unit.unit", "import os\nos.strerror(2)", "a codec must not use os"),
    ("trimq.protocols.kafka.messages.schema", "import asyncio", "a codec must not use asyncio"),
    ("trimq.protocols.kafka.messages.fetch", "import logging", "a codec must not use logging"),
    ("trimq.protocols.amqp.wire.connection", "async def receive(): ...", "a codec must not be async"),
]


@pytest.mark.parametrize(("module", "source", "complaint"), PLANTED)
def test_a_planted_violation_is_found(module: str, source: str, complaint: str) -> None:
    found = violations(module, source, is_package=module in ("trimq", "trimq.core"))
    assert [text for text in found if complaint in text], found


LAWFUL = [
    ("trimq.clock", "import time\nimport asyncio\nasyncio.get_running_loop().call_later(1, time.time)"),
    ("trimq.storage.io.files", "import os, mmap\nfrom pathlib import Path\nopen('x')\nos.getpid()"),
    ("trimq.storage.io.memory_files", "import os\nos.strerror(28)"),
    (
        "trimq.storage.group_commit.flusher",
        "from trimq.offload import Offload\nfrom . import files\nfrom .files import File",
    ),
    ("trimq.storage.io.memory_files", "import threading\nthreading.Lock()"),
    ("trimq.offload", "import threading, queue"),
    ("trimq.core.partitions.idempotence", "import random\ndef pick(chance: random.Random): return chance.random()"),
    ("trimq.core.partitions.idempotence", "from random import Random\nRandom(seed)"),
    ("trimq.core.scheduling.timers", "from datetime import datetime, UTC\ndatetime.fromtimestamp(0, UTC)"),
    (
        "trimq.core.partitions.stream",
        "from trimq.storage.group_commit.journal import Journal\nfrom pathlib import PurePath",
    ),
    ("trimq.core.partitions.stream", "files.open(name)\nmeter.time(now)"),
    (
        "trimq.protocols.kafka.handlers.fetch",
        "from trimq.core import broker\nfrom trimq.protocols.contract import Reply",
    ),
    ("trimq.protocols.kafka.wire.apis", "import_module(f'trimq.protocols.kafka.messages.{family}')"),
    (
        "trimq.server.connection.listener",
        "import socket, signal, os, secrets\nos.getpid()\nfrom trimq.protocols.kafka import x",
    ),
    ("trimq.server.lifecycle", "from trimq.storage import recovery\nfrom trimq.core import broker"),
    ("trimq.cli.serve", "import os, threading\nfrom trimq.server.lifecycle import serve\nopen('x')"),
    ("trimq.server.lifecycle", "import random\nrandom.Random()"),
    ("trimq.__main__", "from trimq.cli.main import main"),
]


@pytest.mark.parametrize(("module", "source"), LAWFUL)
def test_lawful_imports_are_not_reported(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_every_layer_named_in_a_table_row_has_a_table_row() -> None:
    assert {seen for row in SEES.values() for seen in row} <= SEES.keys()


def test_no_layer_is_seen_by_one_that_it_sees() -> None:
    assert [(layer, seen) for layer, row in SEES.items() for seen in row if layer in SEES[seen]] == []


def test_a_free_name_is_not_a_whole_module() -> None:
    assert all("." in name for name in FREE)


def test_a_front_end_is_a_layer_of_its_own() -> None:
    assert layer_of("trimq.protocols.amqp.channel") == "protocols.amqp"
