"""Counters that every front-end keeps."""

from __future__ import annotations

from trimq.metrics import Metrics
from trimq.protocols.client_counters import CountsOfAll


def samples(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_front_ends_count_under_the_same_names() -> None:
    metrics = Metrics()
    counts = CountsOfAll(metrics)
    kafka, amqp = counts.of("kafka"), counts.of("amqp")
    kafka.refused_write("DiskFull")
    kafka.refused_write("DiskFull")
    amqp.refused_write("NotRunning")
    kafka.waiting_reads.value += 1
    kafka.held_reads.value += 3
    assert samples(metrics) == {
        'trimq_refused_writes_total{protocol="kafka",reason="DiskFull"}': 2,
        'trimq_refused_writes_total{protocol="amqp",reason="NotRunning"}': 1,
        'trimq_waiting_reads{protocol="kafka"}': 1,
        'trimq_waiting_reads{protocol="amqp"}': 0,
        'trimq_held_reads_total{protocol="kafka"}': 3,
        'trimq_held_reads_total{protocol="amqp"}': 0,
    }
