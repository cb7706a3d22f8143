"""Passwords wait in turn by address, and the longer the more of them were wrong."""

from __future__ import annotations

import pytest
from doubles import ManualOffload

from trimq.clock import ManualTime
from trimq.core.security.login_delays import source_of
from trimq.core.security.login_queue import MAX_WAIT_MS, MAX_WAITING_PER_ADDRESS, LoginQueue

HERE, THERE = "10.0.0.1:5000", "10.0.0.2:5000"


class Logins:
    """A queue, and the answers in their order."""

    def __init__(self, max_delay_ms: int = 5000) -> None:
        self.time = ManualTime(0)
        self.offload = ManualOffload()
        self.queue = LoginQueue(self.offload, self.time, max_delay_ms)
        self.checked: list[str] = []
        self.answers: list[tuple[str, bool]] = []
        self.gone: set[str] = set()

    def guess(self, password: str, name: str = "alice", address: str = HERE) -> None:
        def work() -> bool:
            self.checked.append(password)
            return password == "right"

        self.queue.check(
            (name, password),
            name,
            address,
            work,
            lambda is_right: self.answers.append((password, is_right)),
            lambda: password not in self.gone,
        )

    def let_pass(self, milliseconds: int) -> None:
        until_ms = self.time.now_ms() + milliseconds
        while self.time.step(until_ms):
            self.offload.run_all()
        self.offload.run_all()

    def fail(self, count: int) -> None:
        for number in range(count):
            self.guess(f"failed-{number}")
            self.let_pass(MAX_WAIT_MS)
        self.checked.clear()
        self.answers.clear()


def test_a_login_is_checked_at_once() -> None:
    logins = Logins()
    logins.guess("right")
    logins.offload.run_all()
    assert logins.answers == [("right", True)]
    assert len(logins.queue) == 0


def test_an_address_with_many_guesses_does_not_keep_another_one_waiting() -> None:
    logins = Logins()
    for number in range(100):
        logins.guess(f"wrong-{number}", name=f"user-{number}")
    logins.guess("right", "alice", THERE)
    while ("right", True) not in logins.answers:
        logins.offload.run_one()
    assert len(logins.checked) <= 3


def test_only_one_check_is_handed_to_the_thread_at_a_time() -> None:
    logins = Logins()
    for number in range(10):
        logins.guess("wrong", name=f"user-{number}")
    assert len(logins.offload) == 1


def test_equal_logins_are_checked_once() -> None:
    logins = Logins()
    for _ in range(50):
        logins.guess("right")
    logins.offload.run_all()
    assert (logins.checked, logins.answers) == (["right"], [("right", True)] * 50)


def test_after_ten_failures_an_address_gets_at_most_one_guess_a_second_for_a_user() -> None:
    logins = Logins(max_delay_ms=1000)
    logins.fail(10)
    for number in range(10_000):
        logins.guess(f"guess-{number}")
        logins.let_pass(1)
    assert 9 <= len(logins.checked) <= 11


def test_guesses_that_arrive_together_are_delayed_too() -> None:
    logins = Logins()
    for number in range(1000):
        logins.guess(f"guess-{number}")
    logins.offload.run_all()
    assert len(logins.checked) <= 4
    logins.let_pass(MAX_WAIT_MS)
    assert len(logins.checked) <= 12
    assert len(logins.answers) == 1000
    assert logins.queue.refused >= 988


def test_the_delay_grows_up_to_its_limit() -> None:
    waits = []
    logins = Logins(max_delay_ms=4000)
    for number in range(20):
        begin_ms = logins.time.now_ms()
        logins.guess(f"guess-{number}")
        logins.offload.run_all()
        while len(logins.answers) <= number:
            logins.time.step(logins.time.now_ms() + 1)
            logins.offload.run_all()
        waits.append(logins.time.now_ms() - begin_ms)
    assert waits == sorted(waits)
    assert waits[:3] == [0, 0, 0]
    assert waits[10] >= 1000
    assert waits[-1] <= 4001


def test_a_right_password_ends_the_delay_and_waits_until_then_too() -> None:
    logins = Logins()
    logins.fail(11)
    assert logins.queue.is_delayed("alice", HERE)
    logins.guess("right")
    logins.offload.run_all()
    assert logins.answers == []
    logins.let_pass(MAX_WAIT_MS)
    assert logins.answers == [("right", True)]
    assert not logins.queue.is_delayed("alice", HERE)


@pytest.mark.parametrize(("name", "address"), [("bob", HERE), ("alice", THERE)])
def test_other_users_and_addresses_are_not_delayed(name: str, address: str) -> None:
    logins = Logins()
    logins.fail(12)
    assert not logins.queue.is_delayed(name, address)
    logins.guess("right", name, address)
    logins.offload.run_all()
    assert logins.answers == [("right", True)]


def test_failures_are_forgotten_after_a_while() -> None:
    logins = Logins()
    logins.fail(12)
    logins.let_pass(1_000_000)
    assert not logins.queue.is_delayed("alice", HERE)


def test_a_login_whose_client_is_gone_is_not_checked() -> None:
    logins = Logins()
    for name in ("a", "b", "c"):
        logins.guess(name, name=name)
    logins.gone.update("bc")
    logins.offload.run_all()
    assert logins.checked == ["a"]
    assert len(logins.queue) == 0


def test_no_more_logins_of_an_address_wait_than_allowed_and_those_of_gone_clients_make_room() -> None:
    logins = Logins()
    for number in range(MAX_WAITING_PER_ADDRESS + 5):
        logins.guess(f"wrong-{number}", name=f"user-{number}")
    assert logins.queue.refused == 5
    logins.gone.update(f"wrong-{number}" for number in range(1, MAX_WAITING_PER_ADDRESS))
    logins.guess("right")
    logins.offload.run_all()
    assert ("right", True) in logins.answers


def test_an_answer_that_fails_does_not_stop_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    logins = Logins()

    def fail(is_right: bool) -> None:
        raise RuntimeError("planted")

    logins.queue.check("bad", "bob", HERE, lambda: True, fail)
    logins.guess("right")
    logins.offload.run_all()
    assert logins.answers == [("right", True)]
    assert "planted" in caplog.text


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1:5000", "10.0.0.1"),
        ("[2001:db8::1]:5000", "20010db800000000/64"),
        ("2001:db8::2:5000", "20010db800000000/64"),
        ("[::ffff:10.0.0.1]:1", "::ffff:a00:1"),
        ("somewhere:1", "somewhere"),
        ("", ""),
    ],
)
def test_an_ipv6_network_counts_as_one_source(address: str, source: str) -> None:
    assert source_of(address) == source
