"""The command itself: its list of commands, refused arguments, and lazy imports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from trimq.cli.main import COMMANDS, main


def test_without_a_command_it_lists_the_commands(trimq) -> None:
    done = trimq()
    assert done.returncode == 2
    assert done.stdout == ""
    for command in COMMANDS:
        assert command in done.stderr


def test_help_is_not_an_error(trimq) -> None:
    done = trimq("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: trimq")


def test_it_prints_its_version(trimq) -> None:
    done = trimq("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("trimq ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["bogus"], "argument COMMAND: invalid choice: 'bogus'"),
        (["topics"], "the following arguments are required: ACTION"),
        (["topics", "bogus"], "argument ACTION: invalid choice: 'bogus'"),
        (["topics", "describe"], "the following arguments are required: NAME"),
        (["topics", "list", "--bogus"], "--bogus is not a known argument"),
        (["topics", "create", "orders", "--streams", "many"], "argument --streams: invalid int value: 'many'"),
        (["topics", "create", "orders", "--setting", "x"], "--setting: expected NAME=VALUE, got 'x'"),
        (["topics", "list", "--http", "nowhere"], "--http: expected HOST:PORT, got 'nowhere': host or port is missing"),
        (["groups", "describe", "g", "extra"], "extra is not a known argument"),
        (["settings", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
        (["storage", "dump"], "one of the arguments --topic --queue is required"),
        (["serve", "--flush"], "argument --flush: expected one argument"),
        (["serve", "--flush", "maybe"], "--flush: expected sync, async or pooled, got 'maybe'"),
    ],
)
def test_a_wrong_argument_is_a_one_line_error_with_exit_code_2(words: list[str], sentence: str, capsys) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"trimq: {sentence}")
    assert shown.err.count("\n") == 1


def test_a_flag_may_not_be_shortened(capsys) -> None:
    assert main(["serve", "--data", "x"]) == 2
    assert "--data is not a flag of trimq serve (did you mean --data-dir?)" in capsys.readouterr().err


def test_a_reader_that_closes_the_pipe_causes_no_traceback(command_environment) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "trimq.cli", "settings"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=command_environment,
        )
    assert done.stderr == ""
    assert done.returncode == 1


def test_serving_does_not_import_packages_of_other_commands(command_environment) -> None:
    program = (
        "import sys; from trimq.cli.main import main; main(['serve', '--node-id', 'x']); "
        "print([name for name in ('rich', 'prometheus_client', 'http.client', 'tomllib', 'importlib.metadata') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=command_environment
    )
    assert done.stdout == "[]\n"
