"""Requests and responses that a broker recorded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from trimq.testing import sightings as module
from trimq.testing.sightings import MAX_EVENTS, EventRecorder

log = logging.getLogger("trimq.somewhere")


@pytest.fixture
def sightings() -> Iterator[EventRecorder]:
    sightings = EventRecorder()
    sightings.open()
    sightings.follow(threading.get_ident())
    yield sightings
    sightings.end()
    module.forget_ended()


class Costly:
    """Counts how often it is converted to text."""

    def __init__(self) -> None:
        self.made = 0

    def __str__(self) -> str:
        self.made += 1
        return "costly"


def test_events_are_printed_in_order(sightings: EventRecorder) -> None:
    for event in ("one", "two", "two", "three"):
        sightings.add_event(event)
    lines = [line.split("s  ", 1)[1] for line in sightings.text().splitlines()]
    assert lines == ["one", "two  (2 times)", "three"]


def test_an_event_becomes_text_only_for_a_report(sightings: EventRecorder) -> None:
    event = Costly()
    sightings.add_event(event)
    assert event.made == 0
    assert "costly" in sightings.text()


def test_only_the_last_events_are_kept(sightings: EventRecorder) -> None:
    for number in range(MAX_EVENTS + 7):
        sightings.add_event(f"event {number}")
    first, *rest = sightings.text().splitlines()
    assert first == "(7 earlier events were dropped)"
    assert len(rest) == MAX_EVENTS
    assert rest[-1].endswith(f"event {MAX_EVENTS + 6}")


def test_log_messages_from_info_on_are_seen(sightings: EventRecorder) -> None:
    log.debug("whispered")
    log.info("said %d", 1)
    log.warning("shouted")
    assert "INFO trimq.somewhere: said 1" in sightings.text()
    assert "WARNING trimq.somewhere: shouted" in sightings.text()
    assert "whispered" not in sightings.text()
    assert sightings.failures == []


def test_log_messages_of_other_threads_are_another_brokers(sightings: EventRecorder) -> None:
    thread = threading.Thread(target=log.warning, args=("not mine",))
    thread.start()
    thread.join()
    assert "not mine" not in sightings.text()


def test_a_logged_exception_is_a_failure(sightings: EventRecorder) -> None:
    try:
        raise LookupError("no")
    except LookupError:
        log.exception("a request failed")
    assert [str(error) for error in sightings.failures] == ["no"]


def test_the_level_of_the_log_is_put_back() -> None:
    logger = logging.getLogger("trimq")
    before = logger.level
    first, second = EventRecorder(), EventRecorder()
    first.open()
    second.open()
    first.end()
    assert logger.getEffectiveLevel() <= logging.INFO
    second.end()
    module.forget_ended()
    assert logger.level == before
    assert first not in logger.handlers


def test_reports_are_of_the_brokers_that_run_or_just_ended(sightings: EventRecorder) -> None:
    ended = EventRecorder()
    ended.open()
    ended.title, sightings.title = "the broker that ended", "the broker that runs"
    ended.end()
    assert [title for title, _ in module.reports()][-2:] == [
        "events of the broker that ended, oldest first",
        "events of the broker that runs, oldest first",
    ]
    module.forget_ended()
    assert "events of the broker that ended, oldest first" not in [title for title, _ in module.reports()]
