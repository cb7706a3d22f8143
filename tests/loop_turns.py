"""Processor time of the event loop of an embedded broker, callback by callback. A machine that has other work does not
change it much."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def measured_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Collects the milliseconds of processor time that each callback took on the loop of the broker."""
    taken: list[float] = []
    run = asyncio.events.Handle._run

    def measured(handle: asyncio.events.Handle) -> None:
        began = time.thread_time()
        run(handle)
        taken.append((time.thread_time() - began) * 1000)

    gc.collect()
    gc.disable()  # a collection would visit the objects of the test, too
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.events.Handle, "_run", measured)
        try:
            yield taken
        finally:
            gc.enable()
