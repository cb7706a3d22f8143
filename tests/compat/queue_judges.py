"""Expectations of every AMQP client, independent of its language: one judge per scenario."""

from __future__ import annotations

from compat.cables import cable_to
from compat.programs import Program

MESSAGES = 200
# A frame of 131,072 bytes has eight bytes of overhead.
SIZES = [0, 1, 131_064, 131_065, 5_000_000]
HEADERS = {
    "text": "é",
    "small": 1,
    "large": 2**40,
    "half": 0.5,
    "flag": True,
    "none": None,
    "list": [1, "a", {"b": [False]}],
}


def judge_confirms(program: Program, address: str) -> None:
    """Many messages are confirmed and delivered in order; a full queue with `reject-publish` rejects."""
    assert program.run(address, "confirms", count=MESSAGES) == [
        {"confirmed": MESSAGES, "refused": 0},
        {"read": [str(number) for number in range(MESSAGES)]},
        {"confirmed": 1, "refused": 1},
    ]


def judge_returns(program: Program, address: str) -> None:
    assert program.run(address, "returns") == [
        {"code": 312, "text": "NO_ROUTE", "exchange": "", "key": "nowhere", "body": "lost"},
        {"confirmed": 1, "refused": 0},
    ]


def judge_prefetch(program: Program, address: str) -> None:
    """With a prefetch of three, three of ten messages are delivered; after two acks, two more."""
    assert program.run(address, "prefetch") == [
        {"came": ["0", "1", "2"], "ready": 7},
        {"came": ["0", "1", "2", "3", "4"], "ready": 5},
    ]


def judge_cut(program: Program, address: str) -> None:
    """The connection is lost with three of five messages unacked; after a reconnect all are delivered in order."""
    with cable_to(address) as cable, program.talking(cable.address, "cut") as conversation:
        assert conversation.heard() == {"came": [["0", False], ["1", False], ["2", False]]}
        cable.cut()
        assert conversation.heard() == {"event": "lost"}
        assert conversation.heard() == {
            "came": [["0", True], ["1", True], ["2", True], ["3", False], ["4", False]],
        }
        conversation.ended()


def judge_dead_letters(program: Program, address: str) -> None:
    """A rejected message is dead-lettered to a second queue, expires there, and is returned, twice."""
    assert program.run(address, "dead-letters") == [
        {"try": 1, "deaths": []},
        {"try": 2, "deaths": [["retry", "expired", 1], ["work", "rejected", 1]]},
        {"try": 3, "deaths": [["retry", "expired", 2], ["work", "rejected", 2]]},
    ]


def judge_rpc(program: Program, address: str) -> None:
    assert program.run(address, "rpc", count=20) == [{"answers": [str(number * 7) for number in range(20)]}]


def judge_bodies(program: Program, address: str) -> None:
    (line,) = program.run(address, "bodies", sizes=",".join(map(str, SIZES)))
    assert line == {"sizes": SIZES, "intact": True}


def judge_headers(program: Program, address: str) -> None:
    (line,) = program.run(address, "headers")
    assert line == {"headers": HEADERS, "priority": 3, "id": "m"}


def judge_transactions(program: Program, address: str) -> None:
    """Messages of a transaction are invisible before the commit, and dropped by a rollback."""
    assert program.run(address, "transactions") == [
        {"ready": 0, "after": "publish"},
        {"ready": 0, "after": "rollback"},
        {"ready": 1, "after": "commit"},
        {"read": "kept"},
    ]


def judge_mistakes(program: Program, address: str) -> None:
    """Each error closes its channel; the connection stays open."""
    assert program.run(address, "mistakes") == [
        {"did": "declare passively", "code": 404},
        {"did": "declare otherwise", "code": 406},
        {"did": "publish to no exchange", "code": 404},
        {"did": "declare", "code": 0},
    ]


def judge_cancelling(program: Program, address: str) -> None:
    assert program.run(address, "cancelled") == [{"event": "cancelled"}]


def judge_many_queues(program: Program, address: str, count: int) -> None:
    lines = program.run(address, "many", count=count)
    assert lines == [
        {"did": "declare", "queues": count},
        {"did": "read", "queues": count},
        {"did": "delete", "left": 0},
    ]
