"""Overview of the broker in JSON under /api/overview, and the same numbers for live pages. Knows no socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trimq.clock import Timeline
from trimq.core.api.broker import Broker
from trimq.metrics import Metrics
from trimq.model import Caller
from trimq.server.http.responses import DeferredResponse, HttpResponse, not_allowed
from trimq.server.http.slices import SliceRunner, Steps

# Read at each sample of a live page: none of them takes time that grows with topics or groups.
_TRAFFIC = ("connections", "requests", "received_bytes", "sent_bytes")
_QUICK_TOTALS = (
    *("topics", "groups", "queues", "users", "disk_free_bytes", "appended_batches", "appended_bytes"),
    *("passes_written", "passes_durable"),
)
_SLOW_TOTALS = ("streams", "stored_bytes")


class OverviewApi:
    """`write_refusal_reason`: returns the reason why writes are refused at present, or an empty text."""

    def __init__(
        self,
        broker: Broker,
        metrics: Metrics,
        write_refusal_reason: Callable[[], str],
        timeline: Timeline,
        slices: SliceRunner,
    ) -> None:
        self._broker = broker
        self._metrics = metrics
        self._write_refusal_reason = write_refusal_reason
        self._timeline = timeline
        self._slices = slices
        self._started_ms = timeline.now_ms()

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API."""
        if list(words) != ["api", "overview"]:
            return None
        if method != "GET":
            return not_allowed(method, "GET, HEAD")
        return self._slices.respond("GET /api/overview", self._all())

    def _all(self) -> Steps[HttpResponse]:
        from importlib.metadata import version  # at the first request: a start does not need it

        values: dict[str, Any] = {"version": version("trimq"), "node": self._broker.cluster.me.id}
        addresses = self._broker.cluster.me.addresses
        values["addresses"] = {name: f"{host}:{port}" for name, (host, port) in addresses.items()}
        values |= yield from self._sample((*_QUICK_TOTALS, *_SLOW_TOTALS))
        return HttpResponse.json(200, values)

    def sample(self) -> dict[str, Any]:
        """Returns the numbers that a live page shows, without those that take long to add up."""
        steps = self._sample(_QUICK_TOTALS)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: dict[str, Any] = end.value
                return found

    def _sample(self, totals: Iterable[str]) -> Steps[dict[str, Any]]:
        listeners: dict[str, dict[str, float]] = {}
        found: dict[str, float] = {}
        for sample in self._metrics.read((*totals, *_TRAFFIC)):
            if sample is None:
                yield
            elif sample.name in _TRAFFIC:
                listeners.setdefault(sample.labels[0], {})[sample.name] = sample.value
            else:
                found[sample.name] = found.get(sample.name, 0) + sample.value
        now_ms = self._timeline.now_ms()
        return {
            "uptime_ms": now_ms - self._started_ms,
            "writes_refused": self._write_refusal_reason(),
            "totals": found,
            "listeners": listeners,
        }
