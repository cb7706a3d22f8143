"""The architecture as tables, and a check of a module's syntax tree against them. A rule has no exceptions: a name
belongs to its door, and a layer sees the layers in its row."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# --- visibility between layers ----------------------------------------------------------------------------------------

_WORDS = ("model", "errors")
_ROOT = (*_WORDS, "clock", "config", "metrics", "offload", "formats")

_SHARED_BY_FRONT_ENDS = (
    "protocols.contract",
    "protocols.client_counters",
    "protocols.long_poll",
    "protocols.turns",
    "wire",
)

# Besides itself. A front-end is a layer of its own, so that no front-end sees another.
SEES: dict[str, tuple[str, ...]] = {
    "model": (),
    "errors": ("model",),
    "clock": _WORDS,
    "config": _WORDS,
    "metrics": _WORDS,
    "offload": _WORDS,
    "formats": _WORDS,
    "wire": (*_WORDS, "formats"),  # codecs that the broker and the client share
    "storage": _ROOT,
    "core": (*_ROOT, "storage"),
    "protocols": (),
    "protocols.contract": (*_ROOT, "core"),
    "protocols.client_counters": _ROOT,
    "protocols.long_poll": (*_ROOT, "protocols.contract", "protocols.client_counters"),
    "protocols.turns": (*_ROOT, "protocols.contract"),
    "protocols.*": (*_ROOT, "core", *_SHARED_BY_FRONT_ENDS),
    "server": (
        *_ROOT,
        "storage",
        "core",
        "protocols",
        *_SHARED_BY_FRONT_ENDS,
        "protocols.*",
    ),
    "client": (*_ROOT, "wire"),
    "console": (*_ROOT, "client"),
    "testing": (*_ROOT, "client", "server"),
    "cli": (*_ROOT, "client", "server", "pyspark_trimq"),
    "__main__": ("cli",),
    "pyspark_trimq": (*_WORDS, "clock", "formats", "client"),  # the public ports send the stored bytes
}
OUTSIDE = ("client", "console", "testing", "cli", "__main__", "pyspark_trimq")

# --- the order of the packages inside a layer -------------------------------------------------------------------------

# Each row is a list of tiers: a package sees the packages of earlier tiers, never those of its own or of later ones.
# Modules beside packages are listed like packages; those joined by "+" count as one.
ORDER: dict[str, tuple[str, ...]] = {
    "trimq.formats": (
        "checksum varints sequences",
        "kafka_batch kafka_subscription rocketmq_unit amqp_content",
        "crossing",
    ),
    "trimq.storage": (
        "io",
        "group_commit",
        "tables guards",
        "checkpoints",
        "partition_log commit_log queue_log",
        "inspection",
    ),
    "trimq.core": (
        "log_text write_gate cold_reads name_patterns metadata scheduling failures filters",
        "security",
        "partitions routing readership",
        "groups transactions queues commit_log",
        "pop",
        "crossing",
        "api",
        "assembly",
    ),
    "trimq.protocols.kafka": ("messages names", "wire", "logins", "handlers", "front_end"),
    "trimq.protocols.rocketmq": (
        "wire",
        "state",
        "clients name_server schedule waiting",
        "transactions",
        "handlers",
        "grpc config_files",
        "front_end",
    ),
    "trimq.protocols.rocketmq.grpc": ("wire", "clients", "handlers", "front_end"),
    "trimq.protocols.amqp": ("methods", "wire", "channel+confirms+deliveries+heartbeats", "handlers", "front_end"),
    "trimq.client": (
        "timing credentials errors loop_thread databases",
        "once agreeing planning",
        "messages link",
        "links",
        "routes peers",
        "heartbeats",
        "instance",
        "sending",
        "consuming",
        "transactions requests admin braking",
        "aio numbering",
        "sync outbox dump",
    ),
    "pyspark_trimq": ("mistakes", "arrow runtime", "broker session worker_daemon", "source sink", "pipelines"),
    "trimq.server": (
        "connection http offline timed_offload optional_packages log_output",
        "gauges front_ends request_descriptions",
        "node traffic_recorder",
        "direct_access embedded lifecycle",
    ),
}

# --- owners of the standard library and other packages ----------------------------------------------------------------


class Door(NamedTuple):
    """`names` may be used by `owners` only. If two doors match, the one with the longer name counts."""

    resource: str
    owners: tuple[str, ...]
    names: tuple[str, ...]
    methods: tuple[str, ...] = ()
    binds_outside: bool = False


_NOW = ("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today")
_FILE_MODULES = ("os", "shutil", "tempfile", "glob", "mmap", "fcntl", "ctypes", "fileinput", "sqlite3", "dbm", "shelve")
_FILE_NAMES = ("builtins.open", "io.open", "io.FileIO", "pathlib.Path", "pathlib.PosixPath")
_SOCKET_MODULES = ("socket", "ssl", "select", "selectors", "socketserver", "http.client", "http.server", "urllib")
_STREAMS = ("asyncio.open_connection", "asyncio.start_server", "asyncio.StreamReader", "asyncio.StreamWriter")
_PROTOCOLS = ("asyncio.BaseProtocol", "asyncio.Protocol", "asyncio.BufferedProtocol", "asyncio.DatagramProtocol")

DOORS = (
    Door("time", ("trimq.clock",), ("time", *_NOW), binds_outside=True),
    Door(
        "the event loop's time",
        ("trimq.clock", "trimq.server"),
        ("asyncio.sleep", "asyncio.wait_for", "asyncio.timeout", "asyncio.timeout_at"),
        methods=("call_later", "time"),
    ),
    Door(
        "files",
        (
            "trimq.storage.io.files",
            "trimq.storage.io.system_calls",
            "trimq.storage.io.folder_lock",
            "trimq.storage.io.memfd",
        ),
        (*_FILE_MODULES, *_FILE_NAMES),
    ),
    Door(
        "the process",
        ("trimq.storage.io.files", "trimq.storage.io.system_calls", "trimq.storage.io.folder_lock", "trimq.server"),
        ("os.getpid", "os.kill", "os.sched_getaffinity", "os.cpu_count", "resource", "signal"),
    ),
    Door(
        "threads",
        ("trimq.offload",),
        ("threading", "_thread", "queue", "concurrent.futures", "multiprocessing", "subprocess", "asyncio.to_thread"),
        methods=("run_in_executor",),
    ),
    # Only the files are called by both the flusher's thread and the event loop's thread.
    Door("a lock", ("trimq.offload", "trimq.storage.io.files", "trimq.storage.io.memory_files"), ("threading.Lock",)),
    Door(
        "sockets",
        ("trimq.server",),
        (*_SOCKET_MODULES, *_STREAMS, *_PROTOCOLS),
        methods=("create_server", "create_connection"),
    ),
    Door("the random source", ("trimq.server",), ("random", "secrets", "uuid.uuid1", "uuid.uuid4", "os.urandom")),
)

# Names below a door that may be used everywhere: pure functions and types.
FREE = ("os.strerror", "os.fspath", "os.PathLike", "os.fsencode", "os.fsdecode", "random.Random", "urllib.parse")

# --- codecs: modules that only convert between bytes and values -------------------------------------------------------

CODECS = (
    "trimq.formats",
    "trimq.wire",
    "trimq.protocols.contract",
    "trimq.protocols.kafka.messages",
    "trimq.protocols.kafka.names",
    "trimq.protocols.kafka.wire",
    "trimq.protocols.rocketmq.wire",
    "trimq.protocols.rocketmq.grpc.wire",
    "trimq.protocols.amqp.methods",
    "trimq.protocols.amqp.wire",
    "trimq.protocols.amqp.channel",
    *(
        f"trimq.protocols.grpc.{module}"
        for module in (
            *("frames", "received_frames", "huffman", "hpack", "request_headers", "streams", "statuses", "calls"),
            *("receive_window", "send_window", "flood_guard", "messages", "connection"),
        )
    ),
)
CODECS_AVOID = ("asyncio", "time", "logging", "os", "socket", "io", "pathlib")


def is_codec(module: str) -> bool:
    return _covers(CODECS, module)


# --- the check --------------------------------------------------------------------------------------------------------


class Reference(NamedTuple):
    """The full name of an imported or used name of another module."""

    line: int
    name: str
    is_plain_import: bool = False


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """Returns every rule that `source` breaks as the text of `module`, as `module:line: text`."""
    tree = ast.parse(source)
    package = module if is_package else module.rpartition(".")[0]
    imports = list(_imports(tree, package))
    references = [*imports, *_uses(tree, package)]
    layer = layer_of(module)
    if layer is None:
        return [f"{module}:1: no layer of this name: add it to SEES"]
    found = [
        *_broken_layers(layer, module, references),
        *_broken_order(module, references),
        *_broken_doors(layer, module, references),
        *_broken_door_calls(layer, module, tree),
        *(_impure(references, tree) if is_codec(module) else ()),
    ]
    return [f"{module}:{line}: {text}" for line, text in sorted(set(found))]


def layer_of(module: str) -> str | None:
    """Returns the key of a module in SEES, "" for the package itself, None if it has none."""
    parts = module.split(".")
    if parts[0] == "pyspark_trimq":
        return "pyspark_trimq"
    if len(parts) == 1 or (parts[1].startswith("__") and parts[1] != "__main__"):
        return ""
    if parts[1] == "protocols" and len(parts) > 2:
        return f"protocols.{parts[2]}"
    return parts[1] if parts[1] in SEES else None


def _broken_layers(layer: str, module: str, references: list[Reference]) -> Iterator[tuple[int, str]]:
    row = "protocols.*" if layer.startswith("protocols.") and layer not in SEES else layer
    sees = SEES.get(row, ())
    for line, name, _ in references:
        if name.split(".")[0] not in ("trimq", "pyspark_trimq"):
            continue
        target = layer_of(name)
        if target in ("", layer):
            continue
        if target is None:
            yield line, f"imports {name}, which is in no layer"
        elif not (target in sees or (target.startswith("protocols.") and target not in SEES and "protocols.*" in sees)):
            yield line, f"{layer or 'the package itself'} must not see {target} (imports {name})"


def _broken_order(module: str, references: list[Reference]) -> Iterator[tuple[int, str]]:
    for package, tiers in ORDER.items():
        if not module.startswith(f"{package}."):
            continue
        tier_of = {entry: number for number, tier in enumerate(tiers) for entry in _entries(tier)}
        joined = {entry: group for tier in tiers for group in tier.split() for entry in group.split("+")}
        own = _entry(package, module)
        if own not in tier_of:
            yield 1, f"{package}.{own} has no place in the order of {package}: add it to ORDER"
            continue
        for line, name, _ in references:
            entry = _entry(package, name) if name.startswith(f"{package}.") else own
            if entry in tier_of and joined[entry] != joined[own] and tier_of[entry] >= tier_of[own]:
                yield line, f"{package}.{own} must not see {package}.{entry} (imports {name})"


def _entries(tier: str) -> list[str]:
    return tier.replace("+", " ").split()


def _entry(package: str, name: str) -> str:
    return name[len(package) + 1 :].split(".")[0]


def _broken_doors(layer: str, module: str, references: list[Reference]) -> Iterator[tuple[int, str]]:
    for line, name, is_plain_import in references:
        if _covers(FREE, name) or (is_plain_import and _is_partly_allowed(name, layer, module)):
            continue
        held = [(len(owned), door) for door in DOORS for owned in door.names if _is_under(owned, name)]
        if held:
            door = max(held, key=lambda pair: pair[0])[1]
            if not _may_open(door, layer, module):
                yield line, f"uses {name}: {door.resource} belongs to {' and '.join(door.owners)}"


def _broken_door_calls(layer: str, module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            for door in DOORS:
                # `time` with arguments is another method of that name; without arguments it reads a loop's clock.
                reads = node.func.attr in door.methods and (node.func.attr != "time" or not node.args)
                if reads and not _may_open(door, layer, module):
                    yield (
                        node.lineno,
                        f"calls .{node.func.attr}(): {door.resource} belongs to {' and '.join(door.owners)}",
                    )
        named = _called(node)
        if named == "Random" and not node.args and not _may_open(DOORS[-1], layer, module):
            yield node.lineno, "makes an unseeded Random: take one that is passed"
        if named in _IMPORTERS and not _known_start(node) and layer not in OUTSIDE:
            yield node.lineno, "imports a module whose name is computed, which no check can follow"


def _impure(references: list[Reference], tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, name, _ in references:
        if _covers(CODECS_AVOID, name):
            yield line, f"a codec must not use {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, "a codec must not be async"


def _is_partly_allowed(imported: str, layer: str, module: str) -> bool:
    """True if only some names of the imported module are allowed: then each use is checked instead of the import."""
    opened = [name for door in DOORS if _may_open(door, layer, module) for name in door.names]
    return any(name.startswith(f"{imported}.") for name in (*FREE, *opened))


def _may_open(door: Door, layer: str, module: str) -> bool:
    return _covers(door.owners, module) or (layer in OUTSIDE and not door.binds_outside)


def _covers(names: tuple[str, ...], name: str) -> bool:
    return any(_is_under(owned, name) for owned in names)


def _is_under(owned: str, name: str) -> bool:
    return name == owned or name.startswith(f"{owned}.")


def _imports(tree: ast.Module, package: str) -> Iterator[Reference]:
    """Yields imports anywhere in the module: in functions, under TYPE_CHECKING, relative, and by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Reference(node.lineno, alias.name, is_plain_import=True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            yield from (Reference(node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in _IMPORTERS and (start := _known_start(node)):
            yield Reference(node.lineno, start)


def _origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, node.module] if node.module else above)


_IMPORTERS = ("import_module", "__import__")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _known_start(call: ast.Call) -> str:
    """Returns the known start of the name in `import_module(name)`: a whole literal, or the head of an f-string."""
    name: ast.AST | None = call.args[0] if call.args else None
    if isinstance(name, ast.JoinedStr):
        name = name.values[0]
    return str(name.value).rstrip(".") if isinstance(name, ast.Constant) else ""


def _uses(tree: ast.Module, package: str) -> Iterator[Reference]:
    """Yields names used through an import: `o.path.exists` after `import os as o` is `os.path.exists`."""
    modules = {"open": "builtins.open"}
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {
                alias.asname or _head(alias.name): alias.name if alias.asname else _head(alias.name)
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{_origin(node, package)}.{alias.name}" for alias in node.names}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            root, *rest = _chain(node)
            if root in modules or (rest and root in names):  # a bare name is reported at its import
                yield Reference(node.lineno, ".".join([modules.get(root) or names[root], *rest]))


def _head(name: str) -> str:
    return name.split(".")[0]


def _chain(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [*_chain(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


# --- the source tree --------------------------------------------------------------------------------------------------


def modules_under(source_folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the full name and file of each module."""
    for path in sorted(source_folder.rglob("*.py")):
        parts = path.relative_to(source_folder).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path
