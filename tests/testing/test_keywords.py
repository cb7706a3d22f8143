"""Settings as keywords."""

from __future__ import annotations

import pytest

from trimq.config import Address, declarations
from trimq.errors import StartupError
from trimq.testing.keywords import Value, address_of, keyword_of, listeners, settings_from, with_address


def test_without_keywords_every_listener_gets_a_free_port() -> None:
    settings = settings_from({})
    wanted = [each for each in listeners() if each.default is not None]
    bound = [address_of(settings, each) for each in wanted]
    assert bound == [Address("127.0.0.1", 0)] * len(bound)
    assert len(bound) >= 2


def test_a_listener_whose_packages_are_missing_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimq.testing.keywords.missing_listeners", lambda: ["rocketmq.grpc_listen"])
    assert settings_from({}).rocketmq.grpc_listen is None


def test_keywords_are_section_and_field() -> None:
    settings = settings_from(
        {"kafka_num_partitions": 3, "flush": "async", "kafka_auto_create_topics": False, "http_listen": "off"}
    )
    assert settings.kafka.num_partitions == 3
    assert settings.flush == "async"
    assert settings.kafka.auto_create_topics is False
    assert settings.http.listen is None


def test_the_environment_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMQ_KAFKA_NUM_PARTITIONS", "7")
    assert settings_from({}).kafka.num_partitions == 1


def test_every_setting_has_a_keyword_of_its_own() -> None:
    names = [keyword_of(declaration) for declaration in declarations()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("kafka_num_partition", r"is not a setting of the broker \(did you mean kafka_num_partitions\?\)"),
        ("colour", "is not a setting of the broker; docs/settings.md lists all settings"),
        ("data_dir", "use folder= instead"),
        ("security_administrator", "define users over HTTP instead"),
        ("ready_file", "use its property `addresses`"),
    ],
)
def test_an_unknown_setting_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(TypeError, match=f"{name} .*{complaint}"):
        settings_from({name: 1})


@pytest.mark.parametrize(
    ("keywords", "complaint"),
    [
        ({"kafka_num_partitions": 0}, "^kafka_num_partitions: expected a whole number"),
        ({"flush": "never"}, "^flush: expected sync, async or pooled"),
        ({"flush_interval_ms": "soon"}, "^flush_interval_ms: expected"),
        ({"kafka_listen": "here"}, "^kafka_listen: expected HOST:PORT or off"),
    ],
)
def test_an_invalid_value_is_reported_with_the_keyword_of_the_test(keywords: dict[str, Value], complaint: str) -> None:
    with pytest.raises(StartupError, match=complaint):
        settings_from(keywords)


def test_an_address_is_put_in_its_place() -> None:
    (kafka,) = [each for each in listeners() if each.key == "kafka.listen"]
    settings = with_address(settings_from({"kafka_num_partitions": 2}), kafka, Address("127.0.0.1", 4711))
    assert address_of(settings, kafka) == Address("127.0.0.1", 4711)
    assert settings.kafka.num_partitions == 2
