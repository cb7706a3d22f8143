"""Reads the project's documents: their links, their commands and their blocks of code. Runs the blocks, so that
documents show only code that works."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tools.broker import as_environment, listeners, running

MADE = {".venv", ".git", "node_modules", "target", "build", "dist", "trimq-data", ".pytest_cache"}
RUNNABLE = ("sh", "console", "python")


class Block(NamedTuple):
    """A fenced block of code. The first word after the fence is its language; `broker` as a further word means that it
    needs a running broker."""

    document: str
    line: int
    language: str
    words: tuple[str, ...]
    text: str


class BlockFailed(Exception):
    """A block of a document failed. The text holds the command and its output."""


def documents(project: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in MADE)
        yield from (Path(parent, name) for name in sorted(files) if name.endswith(".md"))


def blocks_in(document: str, text: str) -> list[Block]:
    found = []
    fence = re.compile(r"^( *)(```+|~~~+) *([^\n`]*)\n(.*?)^ *\2 *$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        indent, _, info, body = match.groups()
        words = info.split()
        line = text.count("\n", 0, match.start()) + 1
        lines = [row.removeprefix(indent) for row in body.splitlines()]
        found.append(Block(document, line, words[0] if words else "", tuple(words[1:]), "\n".join(lines)))
    return found


def prose_of(text: str) -> str:
    """Returns the text without its blocks of code."""
    return re.sub(r"^( *)(```+|~~~+).*?^ *\2 *$", "", text, flags=re.MULTILINE | re.DOTALL)


# --- commands ---------------------------------------------------------------------------------------------------------


def commands_in(document: str, text: str) -> list[str]:
    """Returns every `trimq …` and `make …` in the document, in a block or within a line; `a|b` as one command each."""
    shown = re.findall(r"`((?:trimq|make)(?: [^`]*)?)`", prose_of(text))
    for block in blocks_in(document, text):
        if block.language in ("sh", "console", "text", ""):
            shown += [line for line in command_lines(block.text) if re.match(r"(trimq|make)( |$)", line)]
    return [each for command in shown for each in _alternatives(command)]


def command_lines(text: str) -> list[str]:
    """Returns the commands of a block, each on one line, without prompts and comments."""
    return [command for line in _logical_lines(text) if (command := _bare(line))]


def _logical_lines(text: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def _bare(line: str) -> str:
    return re.sub(r"(^|\s+)#.*$", "", line.strip()).removeprefix("$ ").removesuffix("&").rstrip()


def _alternatives(command: str) -> list[str]:
    match = re.search(r"(?<= )[a-z]+(?:\|[a-z]+)+(?= |$)", command)
    if match is None or command[: match.start()].rstrip().rpartition(" ")[2].startswith("-"):
        return [command]
    return [command[: match.start()] + word + command[match.end() :] for word in match.group().split("|")]


# --- links ------------------------------------------------------------------------------------------------------------


def broken_links(path: Path) -> list[str]:
    """Returns the relative links of a document to a missing file or heading."""
    broken = []
    for target in re.findall(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)", prose_of(path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        linked = path.parent / name if name else path
        if not linked.exists() or (heading and heading not in _anchors(linked)):
            broken.append(target)
    return broken


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.*?) *$", prose_of(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- running a block --------------------------------------------------------------------------------------------------


def needs_common_broker(block: Block) -> bool:
    """True if the block needs a running broker and does not start one itself."""
    return "broker" in block.words and not _started_by(block)


def run_together(blocks: Sequence[Block], folder: Path) -> None:
    """Runs blocks in their order on one broker, as a reader of the document does."""
    with running(folder) as addresses:
        for block in blocks:
            _run_with(block, folder, addresses)


def run_block(block: Block, folder: Path) -> None:
    """Runs the block in `folder`, with a broker of its own if it needs or starts one."""
    with ExitStack() as stack:
        addresses = {}
        if (started := _started_by(block)) or "broker" in block.words:
            arguments = _serve_arguments(started[0]) if started else []
            addresses = stack.enter_context(running(folder, arguments))
        _run_with(block, folder, addresses)


def _started_by(block: Block) -> list[str]:
    """Commands of the block that start a broker."""
    return (
        [] if block.language == "python" else [each.command for each in _steps(block) if _starts_broker(each.command)]
    )


def _run_with(block: Block, folder: Path, addresses: dict[str, str]) -> None:
    if block.language == "python":
        _run_python(block, folder, addresses)
        return
    for step in _steps(block):
        # The other targets of make are run by the project's checks, or would run this test recursively.
        if not _is_make(step.command) and not _starts_broker(step.command):
            _run_step(block, step, folder, addresses)


class _Step(NamedTuple):
    command: str
    expected: str | None


def _steps(block: Block) -> list[_Step]:
    """Splits a block into steps. A console block has a command after each `$ `, with its output below; another block is
    one script, apart from commands that start a broker and those of make."""
    lines = _logical_lines(block.text)
    if block.language == "console":
        parts = re.split(r"^\$ ", "\n".join(lines), flags=re.MULTILINE)[1:]
        return [_Step(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]
    apart = [_Step(_bare(line), None) for line in lines if _is_apart(line)]
    return [*apart, _Step("\n".join(line for line in lines if not _is_apart(line)), None)]


def _is_apart(line: str) -> bool:
    return _starts_broker(_bare(line)) or _is_make(_bare(line))


def _is_make(command: str) -> bool:
    return re.match(r"make( |$)", command) is not None


def _starts_broker(command: str) -> bool:
    return re.match(r"(make run|trimq serve)( |$)", command) is not None and "--help" not in command


def _serve_arguments(command: str) -> list[str]:
    """Returns the flags of a `trimq serve` command; addresses with a standard port get a free one."""
    words = shlex.split(command)
    if words[0] == "make":
        given = [word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=")]
        words = ["make", "run", *shlex.split(" ".join(given))]
    ports = {address.rpartition(":")[2] for address in listeners().values()}
    return [re.sub(r":(\d+)$", lambda port: ":0" if port[1] in ports else port[0], word) for word in words[2:]]


def _run_step(block: Block, step: _Step, folder: Path, addresses: dict[str, str]) -> None:
    command = _readdress(step.command, addresses)
    done = _run(["bash", "-euo", "pipefail", "-c", command], folder, addresses)
    if done.returncode:
        raise BlockFailed(f"{block.document}:{block.line}: {command}\nended with {done.returncode}:\n{done.stdout}")
    if step.expected is not None:
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if not doctest.OutputChecker().check_output(step.expected, done.stdout, flags):
            raise BlockFailed(
                f"{block.document}:{block.line}: {command}\nshows:\n{step.expected}\nbut prints:\n{done.stdout}"
            )


def _readdress(text: str, addresses: dict[str, str]) -> str:
    """Returns the text with standard addresses replaced by the broker's own."""
    for name, address in addresses.items():
        standard = listeners().get(name, address)
        text = text.replace(standard, address).replace(f"localhost:{standard.rpartition(':')[2]}", address)
    return text


def _run_python(block: Block, folder: Path, addresses: dict[str, str]) -> None:
    """Runs the block as a program, or with pytest if it defines tests."""
    path = folder / "test_shown.py"
    path.write_text(_readdress(block.text, addresses))
    is_test = re.search(r"^def test_", block.text, re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else [sys.executable]
    done = _run([*command, str(path)], folder, addresses)
    if done.returncode:
        raise BlockFailed(f"{block.document}:{block.line}: ended with {done.returncode}:\n{done.stdout}")


def _run(command: list[str], folder: Path, addresses: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRIMQ_", "PYTEST_"))}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment | {"PATH": path} | as_environment(addresses),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
