"""Counters that all front-ends keep of their clients, under common names."""

from __future__ import annotations

from trimq.metrics import Counter, Family, Gauge, Metrics


class Counts:
    """Counters of one front-end. Refusals are rare, so their counter is looked up by reason; the others are
    attributes."""

    __slots__ = ("_protocol", "_refused_writes", "held_reads", "waiting_reads")

    def __init__(self, protocol: str, refused_writes: Family[Counter], waiting: Gauge, held: Counter) -> None:
        self._protocol = protocol
        self._refused_writes = refused_writes
        self.waiting_reads = waiting
        self.held_reads = held

    def refused_write(self, reason: str) -> None:
        """Counts a rejected write. `reason`: the class name of the refusal, or the protocol's own error."""
        self._refused_writes.labelled(self._protocol, reason).value += 1

    def refused_writes(self) -> int:
        """Writes of this front-end that were rejected, for any reason."""
        found = self._refused_writes.members.items()
        return sum(counter.value for (protocol, _), counter in found if protocol == self._protocol)


class CountsOfAll:
    """Registers the counters once for all front-ends."""

    def __init__(self, metrics: Metrics) -> None:
        self._refused_writes = metrics.counters(
            "refused_writes", "Rejected batches of messages.", ("protocol", "reason")
        )
        self._waiting = metrics.gauges("waiting_reads", "Reads that wait for messages now.", ("protocol",))
        self._held = metrics.counters("held_reads", "Reads that had to wait for messages.", ("protocol",))

    def of(self, protocol: str) -> Counts:
        return Counts(protocol, self._refused_writes, self._waiting.labelled(protocol), self._held.labelled(protocol))
