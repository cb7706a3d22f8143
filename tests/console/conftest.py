"""A real Chromium, driven by Playwright, on a broker of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from trimq.testing import Broker

PATIENCE_MS = 20_000
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        reason = "no Chromium: install Debian's packages chromium and fonts-noto-cjk"
        if os.environ.get("TRIMQ_REQUIRE_ALL"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def page(browser: Browser, broker: Broker) -> Iterator[Page]:
    """A page on which nothing may go wrong: no error in its console, no refused request, no failed script."""
    context = browser.new_context(locale="en-GB", base_url=broker.http)
    context.set_default_timeout(PATIENCE_MS)
    faults: list[str] = []
    page = context.new_page()

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            faults.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.close()
    expected = getattr(page, "expected_faults", ())
    assert [fault for fault in faults if not any(each in fault for each in expected)] == []
