"""A broker with users: source, sink and pipelines log in, and the password is not shown anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pyspark_trimq.broker.login import Login, read_login
from pyspark_trimq.mistakes import Mistake, sentence_of
from pyspark_trimq.pipelines import PipelineContext, archive, dedupe, lag
from tools.users import make_users
from trimq.errors import StartupError
from trimq.testing import Broker

USER, PASSWORD = "alice", "alice's"
RIGHTS = {  # the minimum rights named in docs/spark.md
    "configure": "^(spark-.*|trimq-spark-tokens)$",
    "write": "^(copies|spark-.*)$",
    "read": "^(orders|copies|spark-.*|trimq-spark-tokens)$",
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        for topic in ("orders", "copies", "others"):
            broker.create_topic(topic, partitions=2)
        for index in range(6):
            broker.send("orders", str(index), str(index % 2), partition=index % 2)
        make_users(broker.http, alice=RIGHTS)
        yield broker


def given(broker: Broker, port: str, **more: str) -> dict[str, str]:
    return {"bootstrap": getattr(broker, port), **more}


def logged_in(broker: Broker, port: str, **more: str) -> dict[str, str]:
    return given(broker, port, user=USER, password=PASSWORD, **more)


def read(spark: Any, options: dict[str, str]) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.format("trimq").options(**options).load().collect())


def told_by_reading(spark: Any, options: dict[str, str]) -> str:
    with pytest.raises(PySparkException) as raised:
        read(spark, options)
    return sentence_of(raised.value)


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_a_reader_logs_in_and_a_wrong_login_is_a_sentence(
    spark: Any, broker: Broker, tmp_path: Path, port: str
) -> None:
    kept = tmp_path / "password"
    kept.write_text(f"{PASSWORD}\n")
    from_file = given(broker, port, user=USER, passwordFile=str(kept), subscribe="orders")
    assert read(spark, from_file) == [b"%d" % index for index in range(6)]
    wrong = told_by_reading(spark, given(broker, port, user=USER, password="his", subscribe="orders"))
    assert wrong == f"the broker at {getattr(broker, port)} refused the user name 'alice' or its password"
    foreign = told_by_reading(spark, logged_in(broker, port, subscribe="others"))
    assert foreign.startswith(f"the broker at {getattr(broker, port)} refused access: ")
    assert "others" in foreign
    nobody = told_by_reading(spark, given(broker, port, subscribe="orders"))
    assert nobody.startswith(f"the broker at {getattr(broker, port)} ")
    expected = "requires a login: give the options user and password" if port == "http" else "a client without a login"
    assert expected in nobody


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_a_query_logs_in_where_it_reads_and_where_it_writes_and_shows_no_password(
    spark: Any, broker: Broker, tmp_path: Path, port: str, capfd: pytest.CaptureFixture[str]
) -> None:
    reader = spark.readStream.format("trimq").options(**logged_in(broker, port, subscribe="orders"))
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.format("trimq").options(**logged_in(broker, port, topic="copies"))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        rows.explain("extended")
        query.explain(True)
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    finally:
        query.stop()
    copies = [record.body for partition in (0, 1) for record in broker.records("copies", partition)]
    assert sorted(body or b"" for body in copies) == [b"%d" % index for index in range(6)]
    shown = capfd.readouterr().out
    assert "trimq" in shown
    login = Login(USER, PASSWORD)
    for secret in (PASSWORD, login.basic().removeprefix("Basic "), login.plain().hex()):
        assert secret not in shown
        assert not [command for command in commands if secret.encode() in command]
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_writer_with_a_wrong_login_is_refused_at_once(spark: Any, broker: Broker) -> None:
    for port in ("http", "kafka"):
        wrong = given(broker, port, user=USER, password="his", topic="copies")
        with pytest.raises(PySparkException) as raised:
            spark.sql("select 'a' as value").write.format("trimq").options(**wrong).mode("append").save()
        assert "refused the user name 'alice' or its password" in sentence_of(raised.value)


def test_pipelines_log_in(spark: Any, broker: Broker, tmp_path: Path) -> None:
    context = PipelineContext(
        bootstrap=broker.http, spark=spark, show=False, user=USER, password=PASSWORD, checkpoint=tmp_path / "own"
    )
    assert dedupe(["orders"], to="copies", by="key", context=context).figures["written"] == 2
    kept = context.__class__(bootstrap=broker.http, spark=spark, show=False, user=USER, password=PASSWORD)
    outcome = archive(["orders"], lake=tmp_path / "lake", context=kept)
    assert outcome.figures["rows archived"] == 6
    assert PASSWORD not in repr(kept)
    texts = [*tmp_path.rglob("*.json"), *(tmp_path / "own").rglob("*")]
    assert not [path for path in texts if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    wrong = PipelineContext(bootstrap=broker.http, spark=spark, show=False, user=USER, password="his")
    with pytest.raises(StartupError, match=r"^the broker at .* refused the user name 'alice' or its password$"):
        lag(context=wrong)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"password": "p"}, "a password is given without a user"),
        ({"user": "a"}, "the user 'a' needs a password"),
        ({"user": "a", "password": "p", "passwordFile": "f"}, "not both"),
        ({"user": "a", "passwordFile": "/nowhere/at all"}, "cannot be read from /nowhere/at all: No such file"),
        ({"user": "a:b", "password": "p"}, "must not contain a colon"),
    ],
)
def test_half_a_login_is_a_sentence(options: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMQ_PASSWORD", raising=False)
    with pytest.raises(Mistake, match=sentence):
        read_login(lambda name: options.get(name))


def test_the_environment_may_hold_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMQ_PASSWORD", "from there")
    assert read_login({"user": "a", "password": None}.get) == Login("a", "from there")
    assert read_login({"user": None}.get) is None
