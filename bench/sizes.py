"""Amount of work of a run: full for stable figures, tiny to check that every figure runs."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    append_bytes: int = 128 * MIB
    small_passes: int = 4000
    rounds: int = 7
    commit_rounds: int = 9
    commit_seconds: float = 0.25
    commit_streams: tuple[int, ...] = (1, 64, 1000)
    read_bytes: int = 256 * MIB
    recovery_bytes: int = 1024 * MIB
    recovery_rounds: int = 5
    topics: int = 100
    streams_per_topic: int = 100
    batches_per_stream: int = 3
    starts: int = 10
    settle_seconds: float = 1.0
    produce_seconds: float = 4.0


FULL = Sizes()
TINY = Sizes(
    append_bytes=MIB // 4,
    small_passes=5,
    rounds=1,
    commit_rounds=1,
    commit_seconds=0.01,
    commit_streams=(1, 3),
    read_bytes=2 * MIB,
    recovery_bytes=MIB,
    recovery_rounds=1,
    topics=2,
    streams_per_topic=2,
    starts=1,
    settle_seconds=0.0,
    produce_seconds=0.1,
)
