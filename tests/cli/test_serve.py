"""`trimq serve` up to the start of the broker."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from trimq.cli.serve import declare, read_settings
from trimq.config import Address, Settings, declarations
from trimq.errors import StartupError


def settings_from(*words: str, environment: dict[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    declare(parser)
    arguments, unknown = parser.parse_known_args(words)
    return read_settings(arguments, unknown, environment or {})


def mistakes_of(*words: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(StartupError) as raised:
        settings_from(*words, environment=environment)
    return str(raised.value)


FIXED_FLAGS = (
    "--config --data-dir --flush --kafka-listen --rocketmq-listen --rocketmq-broker-listen --rocketmq-grpc-listen "
    "--amqp-listen --http-listen --ready-file"
)


def test_the_flags_that_other_software_depends_on_are_there(trimq) -> None:
    done = trimq("serve", "--help")
    assert done.returncode == 0
    for flag in FIXED_FLAGS.split():
        assert f"{flag} " in done.stdout


def test_every_setting_has_its_flag_in_the_help(trimq) -> None:
    shown = trimq("serve", "--help").stdout
    for declaration in declarations():
        assert f"[{declaration.flag} " in shown


def test_flags_become_settings() -> None:
    settings = settings_from("--kafka-listen", "[::1]:0", "--http-listen=off", "--storage-retention-ms", "-1")
    assert settings.kafka.listen == Address("::1", 0)
    assert settings.http.listen is None
    assert settings.storage.retention_ms == -1


def test_no_flag_is_needed() -> None:
    assert settings_from() == Settings()


def test_the_file_is_read_and_beaten_by_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "trimq.toml"
    file.write_text("node_id = 2\nflush = 'async'\ndata_dir = 'from file'\n")
    settings = settings_from(
        "--config", str(file), "--node-id", "4", environment={"TRIMQ_NODE_ID": "3", "TRIMQ_DATA_DIR": "from variable"}
    )
    assert settings == Settings(node_id=4, flush="async", data_dir="from variable")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    assert mistakes_of("--config", path) == f"the settings file {path!r} cannot be read: No such file or directory"


def test_a_folder_is_not_a_settings_file(tmp_path: Path) -> None:
    assert mistakes_of("--config", str(tmp_path)).endswith("cannot be read: Is a directory")


def test_a_file_of_binary_data_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "trimq.toml"
    file.write_bytes(b"\xff\xfe\x00")
    assert mistakes_of("--config", str(file)).endswith("is not UTF-8 text")


def test_invalid_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "trimq.toml"
    file.write_text("node_id = 1\nflush sync\n")
    assert mistakes_of("--config", str(file)).startswith(f"{file} is not TOML: ")
    assert "line 2" in mistakes_of("--config", str(file))


def test_an_empty_file_name_is_refused() -> None:
    assert "cannot be read" in mistakes_of("--config", "")


def test_unknown_flags_are_reported_together_with_all_other_errors(trimq, tmp_path: Path) -> None:
    done = trimq(
        "serve",
        "--kafka-listn",
        "off",
        "word",
        "--config",
        str(tmp_path / "no"),
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == "trimq: 3 mistakes in the settings:"
    assert "  - --kafka-listn is not a flag of trimq serve (did you mean --kafka-listen?)\n" in done.stderr
    assert "  - trimq serve does not accept the argument 'word'\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_value_of_an_unknown_flag_is_not_an_error_of_its_own() -> None:
    assert mistakes_of("--zzz", "1") == "--zzz is not a flag of trimq serve"
    assert mistakes_of("--zzz=1") == "--zzz is not a flag of trimq serve"
