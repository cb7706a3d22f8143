"""Expectations of every RocketMQ client, by the output of its program: one judge per scenario. Judges that move the
broker's clock exchange lines with the program."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from compat.cables import Cable
from compat.programs import Conversation, Line, Program
from compat.rocketmq_wire import PATIENCE_S, Wire

from trimq.testing import Broker

Lines = list[Line]
# Delay after each failed delivery, until the message is dead-lettered.
PAUSES = ("10s", "30s", *(f"{minutes}m" for minutes in (*range(1, 11), 20, 30, 60, 120)))


def judge_sync(lines: Lines) -> None:
    sent, read, found = lines
    assert sent == {"statuses": ["SEND_OK"], "queues": [0, 1, 2, 3]}
    assert read["read"] == {str(i): ["tag", f"key{i}", f"blue {i}"] for i in range(20)}
    assert found == {"place": "7", "id": "7", "key": ["7"], "same": True}


def judge_async(lines: Lines) -> None:
    (line,) = lines
    assert (line["answered"], line["failure"]) == (True, None)
    assert line["read"] == sorted(["first", *map(str, range(20))])


def judge_one_way(lines: Lines) -> None:
    (line,) = lines
    assert line["read"] == sorted(["first", *map(str, range(20))])


def judge_batch(lines: Lines) -> None:
    (line,) = lines
    assert (line["ids"], line["places"], line["queues"]) == (20, 20, 1)
    assert line["offsets"] == list(range(20))
    assert line["read"] == [str(i) for i in range(20)]


def judge_large(lines: Lines) -> None:
    (line,) = lines
    assert line == {
        "intact": ["1048576 true", "3145728 true"],
        "refused": "code 13",
        "named": "MQClientException",  # the client itself validates names
    }


def judge_concurrent(lines: Lines) -> None:
    assert [line["taken"] for line in lines] == [list(range(120)), list(range(130))]


def judge_orderly(lines: Lines) -> None:
    (line,) = lines
    assert line == {"steps": {str(order): list(range(6)) for order in range(5)}, "suspended": 2}


def judge_tags(lines: Lines) -> None:
    (line,) = lines
    assert line["two"] == [f"Aa{i}" for i in range(5)] + [f"C{i}" for i in range(6)]
    assert line["twin"] == [f"BB{i}" for i in range(6)]


def judge_groups(lines: Lines) -> None:
    """Two groups of two members get each message once; when one member leaves, the other gets all later messages."""
    one, two, alone = lines
    for number, line in enumerate((one, two)):
        assert (line["group"], line["each"], line["more"]) == (number, True, 0)
        assert line["all"] == list(range(101))
    assert alone["alone"] == list(range(101, 121))


def judge_retried(lines: Lines) -> None:
    (line,) = lines
    assert line == {"times": [0, 1, 2], "topics": ["retried"] * 3, "kept": True}


def judge_pull(lines: Lines) -> None:
    assert [line["read"] for line in lines] == [list(range(40)), list(range(40, 50))]


def judge_assign(lines: Lines) -> None:
    (line,) = lines
    assert line == {
        "queues": 4,
        "first": [str(i) for i in range(10)],
        "sought": ["6", "7", "8", "9"],
        "all": [str(i) for i in range(10)],
        "last": ["10"],
        "ends": [0, 11],
        "timed": True,
        "before": 0,
        "after": 11,
        "earliest": True,
    }


def judge_requests(lines: Lines) -> None:
    (line,) = lines
    assert line == {"answers": ["one!", "two!"], "silence": "timeout"}


def judge_broadcast(lines: Lines) -> None:
    (line,) = lines
    assert line == {"one": list(range(30)), "other": list(range(30))}


def judge_sql(lines: Lines) -> None:
    (line,) = lines
    assert line == {"taken": [0, 1, 4, 6], "refused": "code 23"}


def judge_kept(program: Program, names: str) -> None:
    """The offset of a broadcast consumer survives its process; messages sent meanwhile are delivered once."""
    for begin, end in ((0, 20), (20, 30), (30, 31)):
        (line,) = program.run(names, "kept", **{"from": begin, "to": end})
        line.pop("scenario")
        assert line == {"taken": list(range(begin, end))}


def judge_grown(program: Program, broker: Broker) -> None:
    """A running producer and push consumer notice queues that are added to a topic."""
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.create_topic("grown", 1)
        with program.talking(broker.addresses["rocketmq"], "grown") as talk:
            assert heard(talk) == {"done": "taken [before]"}
            wire.create_topic("grown", 4)
            talk.go_on()
            assert heard(talk) == {"before": 1, "after": 4, "taken": ["0", "1", "2", "3", "before"]}


# -- with the broker's clock


def heard(talk: Conversation) -> Line:
    line = talk.heard()
    line.pop("scenario")
    assert "failed" not in line, line["failed"]
    return line


def judge_levels(program: Program, broker: Broker) -> None:
    """Level 18 is two hours, 5 one minute, 2 five seconds."""
    with program.talking(broker.addresses["rocketmq"], "levels") as talk:
        for taken, duration in (("0", "5s"), ("0, 2", "55s"), ("0, 2, 5", "119m"), ("0, 2, 5, 18", "0s")):
            assert heard(talk) == {"done": f"taken [{taken}]"}
            broker.advance(duration)
            talk.go_on()
        talk.ended()


def judge_dead_letter(program: Program, broker: Broker) -> None:
    """Sixteen retries, then a dead letter, then a redrive."""
    with program.talking(broker.addresses["rocketmq"], "deadletter") as talk:
        for number, pause in enumerate(PAUSES, 1):
            assert heard(talk) == {"done": f"tried {number}"}
            broker.advance(pause)
            talk.go_on()
        assert heard(talk) == {"tries": list(range(17)), "dead": "bad", "kept": True, "origin": "deadletter"}
        assert heard(talk) == {"again": 0}


def judge_transactions(program: Program, broker: Broker) -> None:
    """Undecided half messages are checked back every half minute; if never decided, they are never delivered."""
    with program.talking(broker.addresses["rocketmq"], "transactions") as talk:
        assert heard(talk) == {"done": "taken [plain, commit]"}
        await_producer(broker, "transactions")
        broker.advance("36s")
        talk.go_on()
        assert heard(talk) == {"done": "taken [plain, commit, asked-commit]"}
        broker.advance("30s")
        talk.go_on()
        assert heard(talk) == {"done": "taken [plain, commit, asked-commit, twice-commit]"}
        talk.go_on()
        line = heard(talk)
        assert line["taken"] == ["plain", "commit", "asked-commit", "twice-commit"]
        never = line["asked"].pop("never")
        assert line["asked"] == {"asked-commit": 1, "asked-rollback": 1, "twice-commit": 2}
        assert never >= 1


def await_producer(broker: Broker, group: str) -> None:
    """Waits until the broker knows the producer: only known producers are checked back."""
    deadline = time.monotonic() + PATIENCE_S
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        while wire.ask(204, {"producerGroup": group})[0]["code"] != 0:
            assert time.monotonic() < deadline, "the producer sends no heartbeat"
            time.sleep(0.02)


def judge_names(program: Program, broker: Broker) -> None:
    """The name server is unreachable for a while: known topics work without it, new ones are found afterwards."""
    names = broker.addresses["rocketmq"]
    cable = Cable(names)
    try:
        with program.talking(cable.address, "names") as talk:
            assert heard(talk) == {"done": "taken [0]"}
            cable.close()
            talk.go_on()
            assert heard(talk) == {"done": f"taken {list(range(11))}"}
            cable = Cable(names, cable.port)
            talk.go_on()
            assert heard(talk) == {"taken": [*range(11), 12], "later": ["11"]}
    finally:
        cable.close()


def await_waiting(broker: Broker, level: int) -> None:
    """Waits until a message is pending at this delay level."""
    deadline = time.monotonic() + PATIENCE_S
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        while wire.done(30, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": level - 1})["offset"] == "0":
            assert time.monotonic() < deadline, f"no message is delayed at level {level}"
            time.sleep(0.02)


def await_dead_letters(broker: Broker, group: str) -> list[bytes]:
    """Waits for dead letters. Returns their bodies."""
    topic = f"%DLQ%{group}"
    deadline = time.monotonic() + PATIENCE_S
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        while (wire.ask(30, {"topic": topic, "queueId": 0})[0].get("extFields") or {}).get("offset", "0") == "0":
            assert time.monotonic() < deadline, "no message was dead-lettered"
            time.sleep(0.02)
        return wire.bodies(topic)


def judge_restarts(program: Program, names: str, wrecks: Sequence[Callable[[], None]]) -> None:
    """A producer and a consumer survive all restarts."""
    with program.talking(names, "restart", rounds=len(wrecks)) as talk:
        taken = [0]
        for number, wreck in enumerate(wrecks, 1):
            assert heard(talk) == {"done": f"taken {taken}"}
            wreck()
            talk.go_on()
            taken += range(number * 10, number * 10 + 10)
        assert heard(talk) == {"taken": taken}
