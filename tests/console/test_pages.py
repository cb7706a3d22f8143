"""The console in a real browser: what an operator sees and does."""

from __future__ import annotations

import re
from collections.abc import Callable

import pika
import pytest
from playwright.sync_api import Page, expect

from tools.users import make_users
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.browser]

MARKUP = '<img src=x onerror="document.title=1">'


def channel_of(broker: Broker) -> pika.adapters.blocking_connection.BlockingChannel:
    host, _, port = broker.addresses["amqp"].rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port))).channel()


def test_the_overview_is_live(broker: Broker, page: Page) -> None:
    page.goto("/")
    expect(page.get_by_text("● live")).to_be_visible()
    topics = page.locator(".card", has=page.get_by_text("Kafka topics", exact=True)).locator("dd")
    expect(topics).to_have_text("0")
    broker.create_topic("orders")
    expect(topics).to_have_text("1")
    expect(page.get_by_role("table", name="Listeners")).to_contain_text(broker.addresses["kafka"])
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("columnheader", name="kafka", exact=True)).to_be_visible()


def test_a_lost_broker_is_said_and_numbers_are_not_frozen_without_a_word(broker: Broker, page: Page) -> None:
    page.expected_faults = ("ERR_", "Failed to load")  # type: ignore[attr-defined]
    page.goto("/")
    expect(page.get_by_text("● live")).to_be_visible()
    broker.crash()
    expect(page.get_by_role("status")).to_contain_text("not live since")


def test_a_topic_is_created_read_changed_and_deleted(broker: Broker, page: Page) -> None:
    page.goto("/topics")
    expect(page.get_by_text("No topics yet.")).to_be_visible()
    page.get_by_role("button", name="Create").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("orders")
    dialog.get_by_label("Streams").fill("2")
    dialog.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.get_by_role("table", name="Streams").locator("tbody tr")).to_have_count(2)

    page.get_by_role("link", name="Settings").click()
    page.get_by_role("searchbox").fill("retention.ms")
    page.get_by_role("button", name="Change").first.click()
    dialog.get_by_label("Value").fill("60000")
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_role("cell", name="60000")).to_be_visible()

    page.get_by_role("button", name="Delete").click()
    confirm = dialog.get_by_role("button", name="Delete")
    expect(confirm).to_be_disabled()
    dialog.get_by_role("textbox").fill("orders")
    confirm.click()
    expect(page).to_have_url(re.compile("/topics$"))
    expect(page.get_by_role("link", name="orders")).to_have_count(0)


def test_a_refused_change_shows_the_sentence_of_the_broker(broker: Broker, page: Page) -> None:
    page.expected_faults = ("409",)  # type: ignore[attr-defined]
    broker.create_topic("orders")
    page.goto("/topics")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("dialog").get_by_label("Name").fill("orders")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("orders")


def test_messages_are_shown_as_text_whatever_is_in_them(broker: Broker, page: Page) -> None:
    broker.create_topic("orders")
    broker.send("orders", MARKUP, key=MARKUP, headers={MARKUP: MARKUP.encode()})
    broker.send("orders", bytes(range(256)))
    page.goto("/topics/orders/messages")
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(MARKUP)
    expect(rows.last).to_contain_text("hexadecimal")
    page.get_by_role("link", name="0", exact=True).click()
    expect(page.get_by_role("heading", name="RocketMQ")).to_be_visible()
    expect(page).to_have_title(re.compile("^Message "))
    assert page.locator("main img").count() == 0


def test_a_queue_is_listed_and_purged(broker: Broker, page: Page) -> None:
    channel = channel_of(broker)
    channel.queue_declare("mails", durable=True)
    for _ in range(3):
        channel.basic_publish("", "mails", b"hello")
    page.goto("/queues")
    row = page.get_by_role("row", name=re.compile("mails"))
    expect(row).to_contain_text("3")
    row.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("mails")
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(row.get_by_role("button", name="Purge")).to_have_count(0)
    assert channel.queue_declare("mails", passive=True).method.message_count == 0
    channel.connection.close()


def test_a_failed_message_is_shown_with_its_reason_and_sent_again(broker: Broker, page: Page) -> None:
    channel = channel_of(broker)
    channel.queue_declare("mails", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "mails", b"bad letter")
    method, _, _ = channel.basic_get("mails")
    channel.basic_reject(method.delivery_tag, requeue=False)
    page.goto("/failures")
    row = page.get_by_role("row", name=re.compile("bad letter"))
    expect(row).to_contain_text("rejected")
    row.get_by_role("button", name="Send again").click()
    expect(row).to_contain_text("sent again")
    assert channel.basic_get("mails", auto_ack=True)[2] == b"bad letter"
    channel.connection.close()


def test_a_connection_is_closed(broker: Broker, page: Page) -> None:
    channel = channel_of(broker)
    page.goto("/clients")
    row = page.get_by_role("row", name=re.compile("amqp"))
    row.get_by_role("button", name="Close").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(row).to_have_count(0)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="administrator"):
        channel.connection.process_data_events(time_limit=20)


def test_after_the_first_user_a_login_is_asked_for_and_keeps_the_page(broker: Broker, page: Page) -> None:
    page.expected_faults = ("401",)  # type: ignore[attr-defined]
    broker.create_topic("orders")
    make_users(broker.http)
    page.goto("/topics")
    page.get_by_label("User").fill("root")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("invalid user name or password")
    page.get_by_label("Password").fill("root's")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.reload()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_every_page_is_in_chinese_too(broker: Broker, page: Page) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="主题")).to_be_visible()
    page.goto("/groups")
    expect(page.get_by_role("heading", name="消费组")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


@pytest.mark.parametrize(("letter", "title"), [("t", "Topics"), ("g", "Groups"), ("f", "Failures"), ("o", "Overview")])
def test_pages_are_reached_by_keys(page: Page, letter: str, title: str) -> None:
    page.goto("/users")
    expect(page.get_by_role("heading", name="Users")).to_be_visible()
    press(page, "g", letter)
    expect(page).to_have_title(re.compile(f"^{title} "))


def test_the_filter_is_reached_by_a_key(broker: Broker, page: Page) -> None:
    broker.create_topic("orders")
    broker.create_topic("payments")
    page.goto("/topics")
    expect(page.get_by_role("link", name="payments")).to_be_visible()
    press(page, "/")
    page.keyboard.type("ord")
    expect(page.get_by_role("link", name="payments")).to_have_count(0)
    expect(page.get_by_role("link", name="orders")).to_be_visible()


@pytest.mark.parametrize("address", ["/", "/topics", "/queues", "/groups", "/failures", "/clients", "/users"])
def test_a_page_fits_a_telephone(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(address)
    expect(page.locator("h1")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def contrast(page: Page, selector: str) -> float:
    """Contrast of the text colour of an element and the page behind it."""
    measure: Callable[..., float] = page.evaluate
    return measure(
        """(selector) => {
            const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
            const light = (rgb) => {
                const [r, g, b] = rgb.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const text = light(parse(getComputedStyle(document.querySelector(selector)).color));
            const back = light(parse(getComputedStyle(document.body).backgroundColor));
            return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_readable_in_light_and_dark(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto("/topics")
    expect(page.locator("h1")).to_be_visible()
    for selector in ("h1", "nav a", ".notice"):
        assert contrast(page, selector) >= 4.5
