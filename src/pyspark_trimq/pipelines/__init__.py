"""Pipelines for common work on topics: archive, restore, audit, dedupe and others. Each is a function and a command
`trimq pipeline NAME`.

Each module is imported on first use: Spark's workers import this package too, and need almost nothing of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_trimq.pipelines.commands.aggregate import aggregate
    from pyspark_trimq.pipelines.commands.archive import archive
    from pyspark_trimq.pipelines.commands.audit import audit
    from pyspark_trimq.pipelines.commands.dead_letters import Choice, dead_letters
    from pyspark_trimq.pipelines.commands.dedupe import dedupe
    from pyspark_trimq.pipelines.commands.join import join
    from pyspark_trimq.pipelines.commands.lag import Load, lag
    from pyspark_trimq.pipelines.commands.restore import restore
    from pyspark_trimq.pipelines.commands.snapshot import snapshot
    from pyspark_trimq.pipelines.reports.outcome import Outcome
    from pyspark_trimq.pipelines.reports.page import write_json, write_report
    from pyspark_trimq.pipelines.runner.context import PipelineContext
    from pyspark_trimq.pipelines.runner.failure import PipelineFailure

_MODULES = {
    "Choice": "commands.dead_letters",
    "PipelineContext": "runner.context",
    "Load": "commands.lag",
    "Outcome": "reports.outcome",
    "PipelineFailure": "runner.failure",
    "aggregate": "commands.aggregate",
    "archive": "commands.archive",
    "audit": "commands.audit",
    "dead_letters": "commands.dead_letters",
    "dedupe": "commands.dedupe",
    "join": "commands.join",
    "lag": "commands.lag",
    "restore": "commands.restore",
    "snapshot": "commands.snapshot",
    "write_json": "reports.page",
    "write_report": "reports.page",
}

__all__ = [
    "Choice",
    "Load",
    "Outcome",
    "PipelineContext",
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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pyspark_trimq.pipelines.{_MODULES[name]}"), name)
