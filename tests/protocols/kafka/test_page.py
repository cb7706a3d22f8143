"""docs/kafka.md: its tables agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

from trimq.protocols.kafka.handlers import HANDLERS
from trimq.protocols.kafka.names.topic_configs import CONFIGS
from trimq.protocols.kafka.wire.apis import APIS

PAGE = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text()


def chapter(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def versions(key: int) -> str:
    api = APIS[key]
    return str(api.min_version) if api.min_version == api.max_version else f"{api.min_version} to {api.max_version}"


def test_the_page_lists_every_api_that_is_served_with_its_versions() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d+) \| ([\d to]+) \|", chapter("APIs that are served"), re.MULTILINE)
    assert sorted(rows) == sorted((APIS[key].name, str(key), versions(key)) for key in HANDLERS)


def test_the_page_lists_every_topic_setting_that_cannot_be_changed() -> None:
    refused, _, _ = chapter("Topic settings that are refused").partition("Settings that concern only")
    assert sorted(rows(refused)) == sorted((config.name, config.fixed) for config in CONFIGS if config.fixed)


def test_the_page_lists_every_topic_setting_without_effect() -> None:
    _, _, unused = chapter("Topic settings that are refused").partition("Settings that concern only")
    assert sorted(name for name, _ in rows(unused)) == [
        config.name for config in CONFIGS if config.documentation.startswith("No effect")
    ]


def rows(text: str) -> list[tuple[str, str]]:
    """Names and reasons of a table; a row may name several settings."""
    found = re.findall(r"^\| (`.*`) \| (.*) \|$", text, re.MULTILINE)
    return [(name, reason) for names, reason in found for name in re.findall(r"`([^`]+)`", names)]
