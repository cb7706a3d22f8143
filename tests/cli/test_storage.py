"""`trimq storage`: output of findings, records and figures."""

from __future__ import annotations

import json
from dataclasses import dataclass

from trimq.cli.storage import print_findings, print_records, print_stats


@dataclass
class Finding:
    file: str
    position: int
    problem: str
    remedy: str


TORN = Finding("orders-0/00000000000000000000.log", 4096, "the batch does not match its checksum", "Restore the file.")


def test_a_sound_folder_is_reported_as_such_and_exits_0(capsys) -> None:
    assert print_findings([], as_json=False) == 0
    assert capsys.readouterr().out == "no damage found\n"


def test_a_finding_names_file_position_problem_and_remedy_and_exits_1(capsys) -> None:
    assert print_findings([TORN], as_json=False) == 1
    assert capsys.readouterr().out == (
        "orders-0/00000000000000000000.log at byte 4096: the batch does not match its checksum. Restore the file.\n"
        "1 finding\n"
    )


def test_programs_get_one_json_line_for_each_finding(capsys) -> None:
    assert print_findings([TORN, TORN], as_json=True) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [vars(TORN)] * 2
    assert print_findings([], as_json=True) == 0
    assert capsys.readouterr().out == ""


def test_records_are_lines_for_people_or_programs(capsys) -> None:
    record = {"offset": 7, "key": None, "body": b"a\n\xff", "headers": {"\x1b[2J": "x"}}
    print_records([record], as_json=False)
    assert capsys.readouterr().out == "offset=7  key=None  body='a\\n\\xff'  headers={'\\x1b[2J': 'x'}\n"
    print_records([record, record], as_json=True)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["body"] for line in lines] == ["YQr/"] * 2


def test_figures_are_a_table_or_json(capsys) -> None:
    rows = [{"topic": "orders", "stream": 0, "bytes": 4096}, {"topic": "mail", "stream": 1, "bytes": 12}]
    print_stats(rows, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "topic   stream  bytes",
        "orders       0   4096",
        "mail         1     12",
    ]
    print_stats(rows, as_json=True)
    assert json.loads(capsys.readouterr().out) == rows


def test_an_empty_folder_is_reported(capsys) -> None:
    print_stats([], as_json=False)
    assert capsys.readouterr().out == "the data folder has no streams\n"


def test_each_action_takes_the_data_folder(trimq) -> None:
    for action in ("verify", "dump", "stats"):
        shown = trimq("storage", action, "--help", environment={"TRIMQ_DATA_DIR": "my-data"}).stdout
        assert "--data-dir FOLDER" in shown
        assert "default: my-data" in " ".join(shown.split())
