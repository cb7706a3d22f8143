"""Settings: declarations, sources of values, and error messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.config import (
    Address,
    Advertised,
    Kafka,
    Limits,
    Settings,
    Storage,
    advertised_address,
    declarations,
    exposed_listeners,
    is_login_required,
    load,
    parse_address,
    suggest_flag,
)
from trimq.config.settings import RENAMED
from trimq.errors import StartupError

BY_KEY = {declaration.key: declaration for declaration in declarations()}


def mistakes_of(flags: dict[str, str] | None = None, environment: dict[str, str] | None = None, file: str = "") -> str:
    with pytest.raises(StartupError) as raised:
        load(flags or {}, environment or {}, file, file_name="trimq.toml")
    return str(raised.value)


def test_without_any_source_every_setting_has_its_default() -> None:
    assert load({}, {}) == Settings()
    assert Settings().kafka.listen == Address("127.0.0.1", 9092)
    assert Settings().amqp.listen == Address("127.0.0.1", 5672)
    rocketmq = Settings().rocketmq
    assert [rocketmq.listen, rocketmq.broker_listen, rocketmq.grpc_listen] == [
        Address("127.0.0.1", port) for port in (9876, 10911, 8081)
    ]


def test_a_listener_with_missing_packages_is_off_unless_requested() -> None:
    assert load({}, {}, missing=["rocketmq.grpc_listen"]).rocketmq.grpc_listen is None
    asked = load({"rocketmq.grpc_listen": "127.0.0.1:8081"}, {}, missing=["rocketmq.grpc_listen"])
    assert asked.rocketmq.grpc_listen == Address("127.0.0.1", 8081)


def test_the_three_names_of_a_setting_come_from_one_declaration() -> None:
    declaration = BY_KEY["rocketmq.broker_listen"]
    assert declaration.variable == "TRIMQ_ROCKETMQ_BROKER_LISTEN"
    assert declaration.flag == "--rocketmq-broker-listen"
    assert BY_KEY["data_dir"].variable == "TRIMQ_DATA_DIR"
    assert BY_KEY["data_dir"].flag == "--data-dir"


def test_no_two_settings_share_a_name() -> None:
    for names in (
        [d.key for d in declarations()],
        [d.variable for d in declarations()],
        [d.flag for d in declarations()],
    ):
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("declaration", declarations(), ids=lambda declaration: declaration.key)
def test_every_setting_explains_itself_and_accepts_its_own_default(declaration) -> None:
    assert declaration.help.endswith(".")
    assert declaration.form
    assert declaration.placeholder
    written = declaration.written_default
    if written is not None:
        text = str(written).lower() if isinstance(written, bool) else str(written)
        assert declaration.convert(text, typed=False) == declaration.default
        assert declaration.convert(written, typed=True) == declaration.default


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("storage.segment_bytes", "bytes"),
        ("storage.segment_ms", "ms"),
        ("storage.disk_pressure_percent", "%"),
        ("limits.unsent_bytes_per_connection", "bytes"),
        ("limits.pending_requests_per_connection", ""),
        ("storage.open_files", ""),
    ],
)
def test_the_unit_is_in_the_name(key: str, unit: str) -> None:
    assert BY_KEY[key].unit == unit


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("storage.segment_bytes", "1073741824 (1 GiB)"),
        ("storage.retention_ms", "604800000 (7 days)"),
        ("storage.retention_bytes", "-1"),
        ("storage.message_bytes", "1048588 bytes"),
        ("flush_interval_ms", "200 ms"),
        ("kafka.auto_create_topics", "true"),
        ("amqp.listen", "127.0.0.1:5672"),
        ("rocketmq.listen", "127.0.0.1:9876"),
        ("rocketmq.advertise", "not set"),
        ("ready_file", "not set"),
    ],
)
def test_a_default_is_shown_as_people_read_it(key: str, shown: str) -> None:
    assert BY_KEY[key].shown_default == shown


def test_a_flag_beats_the_environment_which_beats_the_file() -> None:
    file = "node_id = 2\n[kafka]\nnum_partitions = 2\n[storage]\nopen_files = 100\n"
    environment = {"TRIMQ_NODE_ID": "3", "TRIMQ_KAFKA_NUM_PARTITIONS": "3", "HOME": "/"}
    settings = load({"node_id": "4"}, environment, file)
    assert settings == Settings(node_id=4, kafka=Kafka(num_partitions=3), storage=Storage(open_files=100))


def test_settings_cannot_be_changed_later() -> None:
    with pytest.raises(AttributeError):
        Settings().storage.open_files = 1  # type: ignore[misc]


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("TRUE", True), ("0", False)])
def test_a_switch_takes_its_usual_spellings_as_text(text: str, value: bool) -> None:
    assert load({"kafka.auto_create_topics": text}, {}).kafka.auto_create_topics is value


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load({}, {"TRIMQ_READY_FILE": "", "TRIMQ_NODE_ID": ""}) == Settings()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:9092", Address("::1", 9092)),
        ("[fe80::1%eth0]:65535", Address("fe80::1%eth0", 65535)),
    ],
)
def test_an_address_reads_as_it_is_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "9092", ":9092", "host", "host:", "host:-1", "host:65536", "host:000080", "host:٣", "::1:9092", "[::1]",
     "[]:1", "http://host:80", "a b:1", "user@host:1", "host\n:1", "host: 1", "a..b:1", ".:1", "é:1", "x" * 64 + ":1"],
)  # fmt: skip
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host|port|brackets"):
        parse_address(text)


@given(st.text(max_size=30))
def test_any_text_is_an_address_that_writes_itself_back_or_a_value_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("advertise", "expected"),
    [
        (None, Address("127.0.0.1", 4711)),
        ("broker.example", Address("broker.example", 4711)),
        ("broker.example:9092", Address("broker.example", 9092)),
        ("[::1]", Address("::1", 4711)),
        ("[::1]:9092", Address("::1", 9092)),
    ],
)
def test_clients_get_the_advertised_address_or_else_the_bound_one(advertise: str | None, expected: Address) -> None:
    flags = {} if advertise is None else {"kafka.advertise": advertise}
    advertised = load(flags, {}).kafka.advertise
    assert advertised_address(advertised, Address("127.0.0.1", 4711)) == expected
    assert advertise is None or str(advertised) == advertise


def test_an_advertised_port_must_be_one_that_exists() -> None:
    assert "port 0" in mistakes_of({"kafka.advertise": "host:0"})


def test_off_disables_a_listener() -> None:
    assert load({"kafka.listen": "off"}, {}).kafka.listen is None


def test_a_mistake_names_the_source_that_it_came_from() -> None:
    assert mistakes_of({"node_id": "x"}).startswith("--node-id: ")
    assert mistakes_of(environment={"TRIMQ_NODE_ID": "x"}).startswith("TRIMQ_NODE_ID: ")
    assert mistakes_of(file="node_id = 'x'").startswith("node_id in trimq.toml: ")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("node_id", "-1", "--node-id: expected a whole number, 0 to 2147483647, got '-1'"),
        ("node_id", str(2**70), f"--node-id: expected a whole number, 0 to 2147483647, got '{2**70}'"),
        ("flush", "maybe", "--flush: expected sync, async or pooled, got 'maybe'"),
        ("data_dir", "", "--data-dir: expected a path, got ''"),
        ("kafka.auto_create_topics", "yes", "--kafka-auto-create-topics: expected true or false, got 'yes'"),
        ("limits.topic_name_length", "250", "--limits-topic-name-length: expected a whole number, 1 to 249, got '250'"),
        ("storage.segment_ms", "7d", "--storage-segment-ms: expected a whole number from 1 on, got '7d'"),
        ("http.listen", "80", "--http-listen: expected HOST:PORT or off, got '80': host or port is missing"),
    ],
)  # fmt: skip
def test_a_bad_value_is_a_one_line_error(key: str, value: str, sentence: str) -> None:
    assert mistakes_of({key: value}) == sentence


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("node_id =", "trimq.toml is not TOML: Invalid value (at end of document)"),
        ("nod_id = 1", "nod_id in trimq.toml is not a setting (did you mean node_id?)"),
        (
            "[amqp]\nfailures_ms = 5",
            "amqp.failures_ms in trimq.toml is not a setting any more: it is called failures.retention_ms now",
        ),
        ("[kafka]\nlistn = 'off'", "kafka.listn in trimq.toml is not a setting (did you mean kafka.listen?)"),
        ("[zzz]\nq = 1", "zzz in trimq.toml is not a setting"),
        ("kafka = 9092", "kafka in trimq.toml is a section: write [kafka] and its settings below"),
        ("node_id = '1'", "node_id in trimq.toml: expected a whole number, 0 to 2147483647, got '1'"),
        ("node_id = true", "node_id in trimq.toml: expected a whole number, 0 to 2147483647, got True"),
        (
            "[kafka]\nlisten = 9092",
            "kafka.listen in trimq.toml: expected HOST:PORT or off, got 9092: the value must be a string",
        ),
        ('data_dir = "a\\u0000b"', "data_dir in trimq.toml: expected a path, got 'a\\x00b'"),
        ("[node_id]\nx = 1", "node_id in trimq.toml: expected a whole number, 0 to 2147483647, got {'x': 1}"),
    ],
)
def test_an_error_in_the_file_is_a_one_line_error(file: str, sentence: str) -> None:
    assert mistakes_of(file=file) == sentence


def test_a_very_long_value_does_not_flood_the_screen() -> None:
    assert len(mistakes_of({"node_id": "9" * 100_000})) < 300


def test_a_misspelt_variable_is_reported_but_variables_of_other_programs_are_ignored() -> None:
    others = {"TRIMQ_SERVICE_HOST": "10.0.0.1", "TRIMQ_PORT": "tcp://10.0.0.1:9092", "TRIMQ_KAFKA_PORT_9092_TCP": "x",
              "TRIMQ_HTTP": "127.0.0.1:1", "TRIMQ_REQUIRE_ALL": "1"}  # fmt: skip
    assert load({}, others) == Settings()
    assert mistakes_of(environment={"TRIMQ_KAFKA_LISTN": "off"}) == (
        "TRIMQ_KAFKA_LISTN is not a setting (did you mean TRIMQ_KAFKA_LISTEN?)"
    )


def test_an_unknown_variable_of_a_section_is_reported() -> None:
    assert mistakes_of(environment={"TRIMQ_KAFKA_NOPE": "abc"}).startswith("TRIMQ_KAFKA_NOPE is not a setting")
    assert mistakes_of(environment={"TRIMQ_STORAGE_SEGMENT_SIZE": "1"}) == (
        "TRIMQ_STORAGE_SEGMENT_SIZE is not a setting (did you mean TRIMQ_STORAGE_SEGMENT_MS?)"
    )


@pytest.mark.parametrize(
    "variable",
    [
        "TRIMQ_KAFKA_SERVICE_HOST",
        "TRIMQ_KAFKA_SERVICE_PORT",
        "TRIMQ_KAFKA_SERVICE_PORT_CLIENTS",
        "TRIMQ_AMQP_PORT",
        "TRIMQ_AMQP_PORT_5672_TCP_ADDR",
        "TRIMQ_ROCKETMQ_BROKER",
        "TRIMQ_SOMETHING_ELSE",
    ],
)
def test_variables_of_a_section_that_others_set_are_left_alone(variable: str) -> None:
    assert load({}, {variable: "x"}) == Settings()


def test_a_renamed_variable_is_reported_with_its_new_name() -> None:
    assert mistakes_of(environment={"TRIMQ_AMQP_FAILURES_BYTES": "5"}) == (
        "TRIMQ_AMQP_FAILURES_BYTES is not a setting any more: it is called TRIMQ_FAILURES_RETENTION_BYTES now"
    )


def test_renamed_settings_are_settings() -> None:
    assert set(RENAMED.values()) <= BY_KEY.keys()
    assert not set(RENAMED) & BY_KEY.keys()


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(StartupError) as raised:
        load(
            {"flush": "maybe", "kafka.listen": "0.0.0.0:1"},
            {"TRIMQ_NODE_ID": "x"},
            "zzz = 1",
            file_name="trimq.toml",
            mistakes=["found earlier"],
        )
    first, *rest = str(raised.value).splitlines()
    assert first == "5 mistakes in the settings:"
    for word in ("found earlier", "--flush", "TRIMQ_NODE_ID", "zzz", "kafka.listen is 0.0.0.0:1"):
        assert any(word in line for line in rest)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"kafka.listen": "[::1]:1", "http.listen": "[::1]:1"}, "kafka.listen and http.listen are both [::1]:1"),
        ({"kafka.listen": "0.0.0.0:9092"}, "set kafka.advertise"),
        ({"kafka.listen": "[::]:9092"}, "set kafka.advertise"),
        ({"limits.frame_bytes": "2000"}, "the largest messages could not be received"),
        ({"kafka.num_partitions": "11", "limits.streams_per_topic": "10"}, "above limits.streams_per_topic (10)"),
    ],
)  # fmt: skip
def test_values_that_contradict_each_other_are_refused(flags: dict[str, str], words: str) -> None:
    assert words in mistakes_of(flags)


def test_a_broker_without_listeners_is_refused() -> None:
    listeners = {declaration.key: "off" for declaration in declarations() if declaration.is_listener}
    assert "every listener is off" in mistakes_of(listeners)
    assert load(listeners | {"http.listen": "127.0.0.1:0"}, {}).kafka.listen is None


def test_compatible_listener_settings_are_accepted() -> None:
    load({"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}, {})
    load({"kafka.listen": "0.0.0.0:9092", "kafka.advertise": "broker.example"}, {})
    load({"http.listen": "0.0.0.0:8180"}, {})


def test_a_flag_that_does_not_exist_gets_a_hint_when_one_is_close() -> None:
    assert suggest_flag("--kafka-listn") == " (did you mean --kafka-listen?)"
    assert suggest_flag("--amqp-failures-ms") == " any more: it is called --failures-retention-ms now"
    assert suggest_flag("--zzz") == ""


_values = st.one_of(st.integers(), st.booleans(), st.text(max_size=8), st.none(), st.floats(), st.lists(st.integers()))


@given(st.dictionaries(st.sampled_from(sorted(BY_KEY)), st.text(max_size=12)))
def test_any_flags_give_settings_or_a_mistake(flags: dict[str, str]) -> None:
    try:
        settings = load(flags, {})
    except StartupError:
        return
    assert isinstance(settings, Settings)


@given(st.sampled_from(declarations()), _values)
def test_any_value_of_a_file_is_converted_or_refused(declaration, value: object) -> None:
    try:
        converted = declaration.convert(value, typed=True)
    except ValueError:
        return
    if type(declaration.default) is int:
        bounds = declaration.type.__metadata__[-1]
        assert type(converted) is int
        assert bounds.ge <= converted <= bounds.le
    else:
        assert converted is None or type(converted) in (str, bool, Address, Advertised)


def test_a_name_of_a_topic_and_the_number_of_a_stream_fit_into_a_file_name() -> None:
    longest, most = Limits().topic_name_length, Limits().streams_per_topic
    assert longest + len(f"-{most - 1}") <= 255
    assert BY_KEY["limits.topic_name_length"].type.__metadata__[-1].le + len("-99999") <= 255


def test_an_advertised_host_is_written_as_it_was_read() -> None:
    assert str(Advertised("::1")) == "[::1]"
    assert str(Advertised("host", 1)) == "host:1"


@pytest.mark.parametrize(
    ("flags", "exposed"),
    [
        ({}, []),
        ({"kafka.listen": "[::1]:1", "http.listen": "localhost:2", "amqp.listen": "127.3.2.1:3"}, []),
        ({"amqp.listen": "10.0.0.1:3", "http.listen": "off"}, ["amqp.listen"]),
        ({"http.listen": "0.0.0.0:3", "amqp.listen": "broker.example:5"}, ["amqp.listen", "http.listen"]),
        ({"http.listen": "[::]:3"}, ["http.listen"]),
    ],
)
def test_logins_are_required_by_default_where_other_machines_reach_a_listener(
    flags: dict[str, str], exposed: list[str]
) -> None:
    settings = load(flags, {})
    assert exposed_listeners(settings) == exposed
    assert is_login_required(settings) is bool(exposed)
    assert not is_login_required(load({**flags, "security.mode": "open"}, {}))
    assert is_login_required(load({**flags, "security.mode": "required"}, {}))
