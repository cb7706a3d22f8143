"""Console over HTTP: its files, sessions of browsers, live numbers, and decoded messages."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from importlib.resources import files
from pathlib import Path
from typing import Any

import pika
import pytest

from tools.users import make_users
from tools.vendor_console import LIBRARIES, digest
from trimq.clock import ManualTime
from trimq.server.http.event_streams import LiveEvents
from trimq.testing import Broker

PATIENCE_S = 20
PAGE = {"Accept": "text/html", "Accept-Encoding": "gzip"}
STATIC = Path(str(files("trimq.console"))) / "static"
FIRST_LOAD_BYTES = 120 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.send("orders", b'{"id": 9007199254740993}', key="k1", headers={"trace": b"t1"})
        broker.send("orders", bytes(range(256)))
        broker.send("orders", "x" * 20_000)
        yield broker


class Answer:
    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(broker: Broker) -> HTTPConnection:
    host, _, port = broker.addresses["http"].rpartition(":")
    return HTTPConnection(host, int(port), timeout=PATIENCE_S)


def ask(broker: Broker, method: str, path: str, body: object = None, **headers: str) -> Answer:
    connection = connect(broker)
    sent = None if body is None else json.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, sent, named)
        return Answer(connection.getresponse())
    finally:
        connection.close()


# --- files


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/orders/messages", "/no/such/page"])
def test_every_address_that_a_browser_opens_is_a_page(broker: Broker, path: str) -> None:
    answer = ask(broker, "GET", path, **PAGE)
    assert answer.status == 200
    page = gzip.decompress(answer.body).decode()
    assert "{assets}" not in page
    assert answer.headers["cache-control"] == "no-cache"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/api/topics", "/log/orders/0", "/metrics", "/healthz"])
def test_a_service_is_no_page_even_for_a_browser(broker: Broker, path: str) -> None:
    assert not ask(broker, "GET", path, **PAGE).headers["content-type"].startswith("text/html")


def test_a_program_that_asks_for_an_unknown_path_gets_an_error(broker: Broker) -> None:
    answer = ask(broker, "GET", "/nowhere")
    assert (answer.status, answer.json["error"]) == (404, "NotFound")


def assets_of(broker: Broker) -> list[str]:
    page = gzip.decompress(ask(broker, "GET", "/", **PAGE).body).decode()
    return re.findall(r'(?:href|src)="(/assets/[^"]+)"', page)


def test_the_files_of_a_page_exist_and_are_kept_for_ever(broker: Broker) -> None:
    paths = assets_of(broker)
    assert len(paths) == 4
    for path in paths:
        answer = ask(broker, "GET", path)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ["../console_files.py", "..%2f..%2f__init__.py", "index.html", "", "vendor/SOURCES.toml", "app.mjs/x"]
)
def test_no_other_file_is_served(broker: Broker, name: str) -> None:
    folder = assets_of(broker)[0].rpartition("/")[0]
    assert ask(broker, "GET", f"{folder}/{name}").status == 404


def test_an_asset_of_another_version_is_not_found(broker: Broker) -> None:
    assert ask(broker, "GET", "/assets/0123456789abcdef/app.mjs").status == 404


def modules() -> dict[str, str]:
    return {str(path.relative_to(STATIC)): path.read_text() for path in STATIC.rglob("*.mjs")}


def test_every_import_of_a_module_is_there() -> None:
    texts = modules()
    for name, text in texts.items():
        for wanted in re.findall(r'(?:from|import) ?"([^"]+)"', text):
            assert wanted.startswith("."), f"{name} imports {wanted}"
            assert (STATIC / name).parent.joinpath(wanted).resolve().is_file(), f"{name} imports {wanted}"


def test_the_first_load_is_small() -> None:
    sizes = [len(gzip.compress(path.read_bytes(), 6)) for path in STATIC.rglob("*") if path.is_file()]
    assert sum(sizes) < FIRST_LOAD_BYTES


def test_both_languages_have_every_text_and_no_other() -> None:
    english, chinese = (json.loads((STATIC / "words" / f"{code}.json").read_text()) for code in ("en", "zh"))
    assert english.keys() == chinese.keys()
    places = {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in english.items()}
    assert places == {key: set(re.findall(r"\{(\w+)\}", text)) for key, text in chinese.items()}


def test_every_text_that_a_module_names_exists_and_none_is_left_over() -> None:
    english = json.loads((STATIC / "words" / "en.json").read_text())
    ours = "".join(text for name, text in modules().items() if not name.startswith("vendor"))
    named = set(re.findall(r'\bt\("([^"$]+)"', ours))
    prefixes = set(re.findall(r"\bt\(`([\w.]+)\$", ours))
    assert named <= english.keys()
    left = {key for key in english if key not in named and not any(key.startswith(prefix) for prefix in prefixes)}
    assert left == set()


def test_the_libraries_are_those_whose_digests_are_recorded() -> None:
    recorded = tomllib.loads((STATIC / "vendor" / "SOURCES.toml").read_text())
    assert {library.file: library.version for library in LIBRARIES} == {
        name: entry["version"] for name, entry in recorded.items()
    }
    for name, entry in recorded.items():
        assert digest((STATIC / "vendor" / name).read_text()) == entry["sha256"]
    notice = (Path(__file__).parents[3] / "NOTICE").read_text()
    for entry in recorded.values():
        assert entry["package"] in notice.lower()


# --- sessions


@pytest.fixture
def guarded() -> Iterator[Broker]:
    with Broker() as broker:
        make_users(broker.http, alice={"read": ".*"})
        yield broker


def log_in(broker: Broker, user: str = "alice", password: str = "alice's", **headers: str) -> Answer:
    return ask(broker, "POST", "/api/session", {"user": user, "password": password}, **{"X_TriMQ": "1", **headers})


def test_a_session_stands_for_its_user_until_it_ends(guarded: Broker) -> None:
    opened = log_in(guarded)
    assert opened.json == {"user": "alice", "login_required": True}
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    kept = {"Cookie": cookie.partition(";")[0]}
    assert ask(guarded, "GET", "/api/session", **kept).json["user"] == "alice"
    assert ask(guarded, "GET", "/api/topics", **kept).status == 200
    assert ask(guarded, "GET", "/api/users", **kept).status == 403
    assert ask(guarded, "DELETE", "/api/session", X_TriMQ="1", **kept).status == 204
    assert ask(guarded, "GET", "/api/topics", **kept).status == 401


def test_a_change_by_a_session_needs_the_header_of_the_console(guarded: Broker) -> None:
    kept = {"Cookie": log_in(guarded).headers["set-cookie"].partition(";")[0]}
    assert ask(guarded, "POST", "/api/topics", {"name": "t"}, **kept).status == 401
    assert ask(guarded, "POST", "/api/topics", {"name": "t"}, X_TriMQ="1", **kept).status == 403
    assert ask(guarded, "POST", "/api/session", {"user": "alice", "password": "alice's"}).status == 403


def test_a_wrong_password_opens_no_session_and_asks_a_page_for_no_login_of_the_browser(guarded: Broker) -> None:
    answer = log_in(guarded, password="wrong")
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert "www-authenticate" not in answer.headers
    assert "www-authenticate" in ask(guarded, "GET", "/api/topics").headers


@pytest.mark.parametrize("change", [{"password": "new"}, None])
def test_a_session_ends_with_its_user_or_password(guarded: Broker, change: dict[str, str] | None) -> None:
    kept = {"Cookie": log_in(guarded).headers["set-cookie"].partition(";")[0]}
    root = {"Cookie": log_in(guarded, "root", "root's").headers["set-cookie"].partition(";")[0], "X_TriMQ": "1"}
    done = ask(guarded, "DELETE" if change is None else "PUT", "/api/users/alice", change, **root)
    assert done.status in (200, 204)
    assert ask(guarded, "GET", "/api/session", **kept).json["user"] is None
    assert ask(guarded, "GET", "/api/topics", **kept).status == 401


def cookie_of(broker: Broker) -> dict[str, str]:
    return {"Cookie": log_in(broker).headers["set-cookie"].partition(";")[0]}


def test_the_oldest_session_ends_if_there_are_too_many() -> None:
    with Broker(http_sessions=2) as broker:
        make_users(broker.http, alice={})
        cookies = [cookie_of(broker) for _ in range(3)]
        users = [ask(broker, "GET", "/api/session", **cookie).json["user"] for cookie in cookies]
    assert users == [None, "alice", "alice"]


def test_a_session_ends_with_its_time() -> None:
    with Broker(http_session_minutes=1) as broker:
        make_users(broker.http, alice={})
        cookie = cookie_of(broker)
        broker.advance("30s", liveness=True)
        assert ask(broker, "GET", "/api/session", **cookie).json["user"] == "alice"
        broker.advance("31s", liveness=True)
        assert ask(broker, "GET", "/api/session", **cookie).json["user"] is None


def test_further_pages_with_live_numbers_are_refused() -> None:
    with Broker(http_live_pages=0) as broker:
        answer = ask(broker, "GET", "/api/live")
    assert (answer.status, answer.json["error"]) == (503, "TooManyPages")
    assert "http.live_pages" in answer.json["message"]


def test_a_session_opened_over_tls_is_sent_over_tls_only(guarded: Broker) -> None:
    origin = f"https://{guarded.addresses['http']}"
    assert "Secure" in log_in(guarded, Origin=origin).headers["set-cookie"]
    assert "Secure" not in log_in(guarded).headers["set-cookie"]


@pytest.mark.parametrize("cookie", ["trimq_session=", "trimq_session=x", "a=b; trimq_session=\xff", ";;;"])
def test_an_unknown_session_is_none(guarded: Broker, cookie: str) -> None:
    assert ask(guarded, "GET", "/api/topics", Cookie=cookie).status == 401


# --- numbers


def test_the_overview_has_totals_and_listeners(broker: Broker) -> None:
    answer = ask(broker, "GET", "/api/overview").json
    assert answer["totals"]["topics"] == 1
    assert answer["totals"]["streams"] == 1
    assert answer["totals"]["stored_bytes"] > 20_000
    assert answer["writes_refused"] == ""
    assert answer["listeners"]["http"]["requests"] > 0
    assert answer["addresses"]["kafka"] == broker.addresses["kafka"]


def test_live_numbers_come_as_events_and_end_with_the_connection(broker: Broker) -> None:
    connection = connect(broker)
    connection.request("GET", "/api/live")
    answer = connection.getresponse()
    assert answer.headers["content-type"] == "text/event-stream"
    for _ in range(2):
        line = answer.readline()
        assert json.loads(line.removeprefix(b"data: "))["listeners"]["http"]["connections"] >= 1
        assert answer.readline() == b"\n"
    answer.close()
    connection.close()
    assert ask(broker, "GET", "/healthz").status == 200


def test_live_numbers_need_a_login_where_one_is_required(guarded: Broker) -> None:
    assert ask(guarded, "GET", "/api/live").status == 401
    assert ask(guarded, "POST", "/api/live", {}).status == 405


class Watcher:
    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.is_congested = self.has_given_up = False

    def send_event(self, event: bytes) -> None:
        self.events.append(event)

    def give_up(self) -> None:
        self.has_given_up = True


def test_samples_are_taken_once_for_all_pages_and_only_while_one_is_open() -> None:
    time, taken = ManualTime(0), []
    live = LiveEvents(time, lambda: {"n": len(taken)} if taken.append(1) is None else {}, limit=2)
    assert time.next_due_ms() is None
    watchers = [Watcher(), Watcher()]
    for watcher in watchers:
        assert not live.is_full
        assert live.watch(watcher).startswith(b"data: {")
    assert live.is_full
    while time.step(3000):
        pass
    assert len(taken) == 2 + 3
    assert [len(watcher.events) for watcher in watchers] == [3, 3]
    for watcher in watchers:
        live.forget(watcher)
    assert time.next_due_ms() is None


def test_a_page_that_does_not_read_misses_samples_and_is_closed_after_a_minute() -> None:
    time = ManualTime(0)
    live = LiveEvents(time, dict, limit=1)
    slow = Watcher()
    live.watch(slow)
    slow.is_congested = True
    while time.step(59_000):
        pass
    assert (slow.events, slow.has_given_up) == ([], False)
    while time.step(70_000):
        pass
    assert slow.has_given_up
    assert time.next_due_ms() is None


# --- messages


def test_messages_are_decoded_for_people_and_nothing_is_taken(broker: Broker) -> None:
    for _ in range(2):
        answer = ask(broker, "GET", "/api/messages/orders/0").json
        first, binary, long = answer["messages"]
        assert (answer["start"], answer["end"], answer["next"]) == (0, 3, 3)
        assert first["body"]["text"] == '{"id": 9007199254740993}'
        assert first["key"]["text"] == "k1"
        assert [[name, value["text"]] for name, value in first["headers"]] == [["trace", "t1"]]
        assert (binary["body"]["form"], binary["body"]["text"][:8]) == ("hex", "00 01 02")
        assert (long["body"]["is_cut"], len(long["body"]["text"]), long["body_bytes"]) == (True, 16 * 1024, 20_000)


def test_messages_of_a_queue_are_shown_and_stay(broker: Broker) -> None:
    host, _, port = broker.addresses["amqp"].rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    channel.queue_declare("mails", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "mails", "grüße".encode(), pika.BasicProperties(message_id="7"))
    (message,) = ask(broker, "GET", "/api/messages/mails/0").json["messages"]
    assert (message["body"]["text"], message["origin"]) == ("grüße", "amqp")
    assert channel.queue_declare("mails", passive=True).method.message_count == 1
    connection.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/messages/none/0", 404),
        ("/api/messages/orders/9", 404),
        ("/api/messages/orders/x", 400),
        ("/api/messages/orders/0?from=-1", 400),
        ("/api/messages/orders/0?from=99", 416),
        ("/api/messages/orders/0?limit=0", 200),
    ],
)
def test_a_wrong_place_of_messages_is_an_error(broker: Broker, path: str, status: int) -> None:
    assert ask(broker, "GET", path).status == status


def test_messages_need_the_right_to_read(guarded: Broker) -> None:
    root = {"Cookie": log_in(guarded, "root", "root's").headers["set-cookie"].partition(";")[0], "X_TriMQ": "1"}
    assert ask(guarded, "POST", "/api/topics", {"name": "secret"}, **root).status == 201
    assert ask(guarded, "PUT", "/api/permissions/alice", {"read": "^public"}, **root).status == 204
    alice = {"Cookie": log_in(guarded).headers["set-cookie"].partition(";")[0]}
    assert ask(guarded, "GET", "/api/messages/secret/0", **alice).status == 403
    assert ask(guarded, "GET", "/api/messages/secret/0", **root).status == 200


# --- responses


def test_json_is_compressed_where_the_client_accepts_it_and_it_is_worth_it(broker: Broker) -> None:
    plain = ask(broker, "GET", "/api/topic-settings")
    packed = ask(broker, "GET", "/api/topic-settings", Accept_Encoding="gzip")
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    assert plain.headers["cache-control"] == "no-store"
    assert "content-encoding" not in ask(broker, "GET", "/api/groups", Accept_Encoding="gzip").headers
