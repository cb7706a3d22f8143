"""`trimq settings`, and the page docs/settings.md."""

from __future__ import annotations

from pathlib import Path

from trimq.cli.main import main
from trimq.config import Settings, declarations, load

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_table_names_every_setting(trimq) -> None:
    done = trimq("settings")
    assert (done.returncode, done.stderr) == (0, "")
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["setting", *(declaration.key for declaration in declarations())]


def test_the_documentation_agrees_with_the_declarations(capsys) -> None:
    assert main(["settings", "--format", "markdown"]) == 0
    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out, (
        "docs/settings.md is old: write it with `trimq settings --format markdown > docs/settings.md`"
    )


def test_the_page_gives_each_setting_under_its_three_names() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for declaration in declarations():
        start = f"| `{declaration.key}` | `{declaration.variable}` | `{declaration.flag}` |"
        assert sum(line.startswith(start) for line in lines) == 1


def test_the_file_of_defaults_gives_the_defaults(capsys) -> None:
    assert main(["settings", "--format", "toml"]) == 0
    text = capsys.readouterr().out
    assert load({}, {}, text) == Settings()
    for declaration in declarations():
        assert declaration.help in text


def test_the_file_of_defaults_can_be_edited(capsys) -> None:
    main(["settings", "--format", "toml"])
    text = capsys.readouterr().out
    edited = text.replace("node_id = 1", "node_id = 7").replace('listen = "127.0.0.1:9092"', 'listen = "off"')
    settings = load({}, {}, edited)
    assert settings.node_id == 7
    assert settings.kafka.listen is None
