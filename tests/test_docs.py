"""The documents are correct: settings, commands and links exist, and code examples run.

A block of `sh` is run as a script in an empty folder; a block of `console` is run command by command, and the lines
after a command must be its output (`...` stands for anything); a block of `python` is run, under pytest if it defines
tests. Blocks with `broker` in their fence (```sh broker) run on one broker per document, in their order; a block that
itself contains `make run` or `trimq serve` has a broker of its own. Standard ports are replaced by the broker's ports.
A block of `toml` must load as settings. A block that must not be run is `text`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tools.documents import (
    RUNNABLE,
    Block,
    BlockFailed,
    blocks_in,
    broken_links,
    commands_in,
    documents,
    needs_common_broker,
    run_block,
    run_together,
)
from trimq.config import declarations, load
from trimq.errors import StartupError

PROJECT = Path(__file__).parent.parent
DOCUMENTS = {str(path.relative_to(PROJECT)): path for path in documents(PROJECT)}
FOREIGN = r"^ *(?:from|import) (?:confluent_kafka|pika|pyspark|pyspark_trimq|rocketmq)\b|^trimq pipeline "
BLOCKS = [block for name, path in DOCUMENTS.items() for block in blocks_in(name, path.read_text())]
COMMANDS = sorted({command for name, path in DOCUMENTS.items() for command in commands_in(name, path.read_text())})


@cache
def trimq(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "trimq.cli", *words]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def fault_in(command: str) -> str:
    """Error in a command of `trimq` or `make` as a document shows it; "" if it is correct."""
    program, *words = shlex.split(command)
    if program == "make":
        unknown = [word for word in words if "=" not in word and word not in targets()][:1]
        return f"make has no target {unknown[0]}" if unknown else ""
    first_flag = next((place for place, word in enumerate(words) if word.startswith(("-", "["))), len(words))
    code, output = trimq(*words[:first_flag], "--help")
    if code:
        return output
    flags = re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words[first_flag:]))
    unknown = [flag for flag in flags if not re.search(rf"{flag}(?![\w-])", output)]
    return f"{unknown[0]} is no flag of trimq {' '.join(words[:first_flag])}" if unknown else ""


# --- the documents ----------------------------------------------------------------------------------------------------


def test_the_page_of_settings_is_the_output_of_the_broker() -> None:
    """The page is generated with `trimq settings --format markdown > docs/settings.md`."""
    code, printed = trimq("settings", "--format", "markdown")
    assert code == 0
    assert (PROJECT / "docs" / "settings.md").read_text() == printed


def test_every_setting_is_on_the_page_of_settings() -> None:
    page = (PROJECT / "docs" / "settings.md").read_text()
    keys = [setting.key for setting in declarations()]
    assert keys
    assert [key for key in keys if f"`{key}`" not in page] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_a_document_names_exists(command: str) -> None:
    assert fault_in(command) == ""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_within_the_project_leads_somewhere(name: str) -> None:
    assert broken_links(DOCUMENTS[name]) == []


@pytest.mark.parametrize("target", sorted(targets()))
def test_every_target_of_make_is_in_its_help(target: str) -> None:
    assert re.search(rf"^{target}:.*## \S", (PROJECT / "Makefile").read_text(), re.MULTILINE)


def test_the_readme_shows_the_two_commands_that_do_the_set_up() -> None:
    shown = {line for block in BLOCKS if block.document == "README.md" for line in block.text.splitlines()}
    assert {"make run", "make test"} <= {line.partition("#")[0].strip() for line in shown}


def marks_of(*blocks: Block) -> list[pytest.MarkDecorator]:
    """Marks blocks as foreign if one imports a client library or PySpark, or starts a pipeline."""
    is_foreign = any(re.search(FOREIGN, block.text, re.MULTILINE) for block in blocks)
    return [pytest.mark.foreign_client] if is_foreign else []


def alone() -> list[object]:
    found = [block for block in BLOCKS if block.language in RUNNABLE and not needs_common_broker(block)]
    return [pytest.param(block, id=f"{block.document}:{block.line}", marks=marks_of(block)) for block in found]


def on_one_broker() -> list[object]:
    """The blocks of each document, after those of the README: its readers have the same broker."""
    found: dict[str, list[Block]] = {}
    for block in BLOCKS:
        if block.language in RUNNABLE and needs_common_broker(block):
            found.setdefault(block.document, []).append(block)
    first = found["README.md"]
    found |= {name: [*first, *blocks] for name, blocks in found.items() if name != "README.md"}
    return [pytest.param(blocks, id=name, marks=marks_of(*blocks)) for name, blocks in found.items()]


@pytest.mark.timeout(300)  # some of them start Spark
@pytest.mark.parametrize("block", alone())
def test_a_code_block_of_a_document_runs(block: Block, tmp_path: Path) -> None:
    run_block(block, tmp_path)


@pytest.mark.timeout(900)  # some of them start Spark several times
@pytest.mark.parametrize("blocks", on_one_broker())
def test_the_blocks_of_a_document_run_on_one_broker_in_their_order(blocks: list[Block], tmp_path: Path) -> None:
    run_together(blocks, tmp_path)


def test_settings_that_a_document_shows_load() -> None:
    for block in BLOCKS:
        if block.language == "toml":
            load({}, {}, block.text, file_name=f"{block.document}:{block.line}")


def test_a_block_states_its_kind() -> None:
    known = {*RUNNABLE, "toml", "text", "json", "mermaid"}
    assert [f"{block.document}:{block.line}" for block in BLOCKS if block.language not in known] == []


# --- the checks themselves, on planted documents ----------------------------------------------------------------------


def planted(language: str, text: str) -> Block:
    (block,) = blocks_in("planted.md", f"Before.\n\n```{language}\n{text}\n```\n\nAfter.\n")
    return block


def test_a_block_is_read_with_its_line_language_and_words() -> None:
    assert planted("sh broker", "echo 1\necho 2") == Block("planted.md", 3, "sh", ("broker",), "echo 1\necho 2")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "test -d . && echo yes"),
        ("sh", "# a comment\nword=one\ntest $word = one"),
        ("sh", "make test"),
        ("console", "$ echo one two\none ...\n$ true"),
        ("python", "assert 1 + 1 == 2"),
        ("python", "def test_sums():\n    assert 1 + 1 == 2"),
    ],
)
def test_a_block_that_works_passes(tmp_path: Path, language: str, text: str) -> None:
    run_block(planted(language, text), tmp_path)


@pytest.mark.parametrize(
    ("language", "text", "complaint"),
    [
        ("sh", "false\ntrue", "planted.md:3"),
        ("sh", "no-such-command", "not found"),
        ("console", "$ echo one\ntwo", "but prints:\none"),
        ("python", "assert 1 + 1 == 3", "AssertionError"),
        ("python", "def test_sums():\n    assert 1 + 1 == 3", "1 failed"),
    ],
)
def test_a_block_that_does_not_work_is_found(tmp_path: Path, language: str, text: str, complaint: str) -> None:
    with pytest.raises(BlockFailed, match=re.escape(complaint)):
        run_block(planted(language, text), tmp_path)


@pytest.mark.parametrize(
    "block",
    [
        planted("sh broker", "curl -fsS http://localhost:8180/readyz && test -n $TRIMQ_KAFKA"),
        planted("sh", "trimq serve --data-dir here --kafka-listen 127.0.0.1:9092 &\ntest -d here\ntrimq topics list"),
        planted("sh", "make run ARGS='--flush async'\ncurl -fsS 127.0.0.1:8180/readyz"),
    ],
    ids=["asked for", "served", "run by make"],
)
def test_a_block_gets_the_broker_that_it_needs(tmp_path: Path, block: Block) -> None:
    run_block(block, tmp_path)


def test_blocks_that_use_one_name_for_two_layouts_are_found(tmp_path: Path) -> None:
    create = "trimq topics create greetings"
    blocks = [planted("sh broker", create), planted("sh broker", f"{create} --home commit-log")]
    with pytest.raises(BlockFailed, match="greetings"):
        run_together(blocks, tmp_path)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("trimq serve --flush async", ""),
        ("trimq topics describe orders --json", ""),
        ("trimq topics rename", "rename"),
        ("trimq serve --no-such-flag 1", "--no-such-flag"),
        ("make test", ""),
        ("make example NAME=e08_send_and_wait", ""),
        ("make coffee", "coffee"),
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str, complaint: str) -> None:
    assert (complaint in fault_in(command)) if complaint else (fault_in(command) == "")


def test_commands_are_found_in_lines_and_in_blocks() -> None:
    text = "Say `trimq storage verify|stats --data-dir D`, not `trimqx`.\n\n```sh\nmake run  # starts\n```\n"
    assert commands_in("planted.md", text) == [
        "trimq storage verify --data-dir D",
        "trimq storage stats --data-dir D",
        "make run",
    ]


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# There it is\n")
    page = tmp_path / "page.md"
    page.write_text("[a](there.md) [b](there.md#there-it-is) [c](gone.md) [d](there.md#gone) [e](https://x.example/)\n")
    assert broken_links(page) == ["gone.md", "there.md#gone"]


def test_settings_that_do_not_exist_are_found() -> None:
    with pytest.raises(StartupError):
        load({}, {}, "no_such_setting = 1")
