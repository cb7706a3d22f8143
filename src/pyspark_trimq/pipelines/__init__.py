"""Pipelines for what people do with topics beside reading them: each a function, and a command `trimq pipeline NAME`.

Each is loaded when it is asked for: Spark's workers load this package too, and need next to nothing of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_trimq.pipelines.archiving import archive
    from pyspark_trimq.pipelines.auditing import audit
    from pyspark_trimq.pipelines.deduplicating import dedupe
    from pyspark_trimq.pipelines.failure import PipelineFailure
    from pyspark_trimq.pipelines.lags import Load, lag
    from pyspark_trimq.pipelines.outcome import Outcome
    from pyspark_trimq.pipelines.redriving import Choice, dead_letters
    from pyspark_trimq.pipelines.report import write_json, write_report
    from pyspark_trimq.pipelines.restoring import restore
    from pyspark_trimq.pipelines.running import How
    from pyspark_trimq.pipelines.snapshots import snapshot
    from pyspark_trimq.pipelines.tables import aggregate, join

_HOMES = {
    "Choice": "redriving",
    "How": "running",
    "Load": "lags",
    "Outcome": "outcome",
    "PipelineFailure": "failure",
    "aggregate": "tables",
    "archive": "archiving",
    "audit": "auditing",
    "dead_letters": "redriving",
    "dedupe": "deduplicating",
    "join": "tables",
    "lag": "lags",
    "restore": "restoring",
    "snapshot": "snapshots",
    "write_json": "report",
    "write_report": "report",
}

__all__ = [
    "Choice",
    "How",
    "Load",
    "Outcome",
    "PipelineFailure",
    "aggregate",
    "archive",
    "audit",
    "dead_letters",
    "dedupe",
    "join",
    "lag",
    "restore",
    "snapshot",
    "write_json",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pyspark_trimq.pipelines.{_HOMES[name]}"), name)
