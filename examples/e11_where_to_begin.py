"""E11, RocketMQ: a new group starts at the last message, at the first, or at the time 20210701080000.

Done by hand, as clients do it: they query the offset of the group, and only if the broker has none they look up a start
themselves. In a new queue, which still has its very first message, a new group always starts at that message. The
broker runs in this process, so that its clock can be advanced."""

from __future__ import annotations

from datetime import datetime

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

TOPIC = "e11"
READ_SO_FAR, SEARCH_TIME, MAX_OFFSET = 14, 29, 30
NOT_FOUND = 22
STAMP = "%Y%m%d%H%M%S"
EIGHT = "20210701080000"  # local time, as in consumeTimestamp of the clients
FIVE_DAYS_BEFORE = datetime(2021, 6, 26, 7)


def begin(wire: Wire, group: str, where: str) -> int:
    """Returns the first offset of the group: "last", "first", or a time."""
    queue = {"topic": TOPIC, "queueId": 0}
    header, _ = wire.ask(READ_SO_FAR, {"consumerGroup": group, **queue})
    if header["code"] != NOT_FOUND:
        return int(header["extFields"]["offset"])
    if where == "first":
        return 0  # the broker corrects an offset before its first message
    if where == "last":
        return int(wire.done(MAX_OFFSET, queue)["offset"])
    time_ms = int(datetime.strptime(where, STAMP).astimezone().timestamp() * 1000)
    return int(wire.done(SEARCH_TIME, {**queue, "timestamp": time_ms})["offset"])


def read(wire: Wire, offset: int) -> list[str]:
    """Returns the bodies from this offset on, without the filling."""
    start = int(wire.done(31, {"topic": TOPIC, "queueId": 0})["offset"])
    return [body.decode() for body in wire.bodies(TOPIC, max(offset, start)) if len(body) < 100]


def main() -> None:
    # Small files, so that the oldest are soon full and expire: in the first night after three days.
    with (
        Broker(now=FIVE_DAYS_BEFORE, rocketmq_commit_file_bytes=1 << 16) as broker,
        Wire(broker.addresses["rocketmq_broker"]) as wire,
    ):
        wire.create_topic(TOPIC, 1)
        wire.send(TOPIC, b"long ago")
        young = {where: begin(wire, f"young-{where}", where) for where in ("last", "first")}
        print(f"a young queue: {young}")
        assert young == {"last": 0, "first": 0}

        for _ in range(10):
            wire.send(TOPIC, bytes(20_000))
        broker.advance("5d")
        wire.send(TOPIC, b"seven")
        broker.advance("1h1s")
        wire.send(TOPIC, b"eight")
        broker.advance("1h")
        wire.send(TOPIC, b"nine")
        places = {where: begin(wire, f"late-{where}", where) for where in ("first", EIGHT, "last")}
        wire.send(TOPIC, b"new")
        seen = {where: read(wire, offset) for where, offset in places.items()}
        for where, bodies in seen.items():
            print(f"from {where:<14}: offset {places[where]:>2}, {bodies}")
        everything = ["seven", "eight", "nine", "new"]
        assert seen == {"first": everything, EIGHT: everything[1:], "last": ["new"]}, seen


if __name__ == "__main__":
    main()
