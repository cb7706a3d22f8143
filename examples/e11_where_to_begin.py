"""E11, RocketMQ: a new group begins at the last message, at the first, or at a time written as 20210701080000.

Done by hand, as clients do it: they ask how far the group has read, and only where the broker knows nothing they look
for the place themselves. Of a young queue, which still has its very first message, a new group gets everything,
whatever it asks for. The broker is in this process, so that days pass at once.
"""

from __future__ import annotations

from datetime import datetime

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

TOPIC = "e11"
READ_SO_FAR, SEARCH_TIME, MAX_OFFSET = 14, 29, 30
NOT_FOUND = 22
STAMP = "%Y%m%d%H%M%S"


def begin(wire: Wire, group: str, where: str) -> int:
    """The first offset for the group: "last", "first", or a time."""
    queue = {"topic": TOPIC, "queueId": 0}
    header, _ = wire.ask(READ_SO_FAR, {"consumerGroup": group, **queue})
    if header["code"] != NOT_FOUND:
        return int(header["extFields"]["offset"])
    if where == "first":
        return 0  # the broker puts right what lies before its first message
    if where == "last":
        return int(wire.done(MAX_OFFSET, queue)["offset"])
    time_ms = int(datetime.strptime(where, STAMP).astimezone().timestamp() * 1000)
    return int(wire.done(SEARCH_TIME, {**queue, "timestamp": time_ms})["offset"])


def read(wire: Wire, offset: int) -> list[str]:
    """From there on, what is no filling."""
    start = int(wire.done(31, {"topic": TOPIC, "queueId": 0})["offset"])
    return [body.decode() for body in wire.bodies(TOPIC, max(offset, start)) if len(body) < 100]


def main() -> None:
    # Small files, so that the oldest are soon full and gone: in the first night after three days.
    with (
        Broker(rocketmq_commit_file_bytes=1 << 16) as broker,
        Wire(broker.addresses["rocketmq_broker"]) as wire,
    ):
        wire.create_topic(TOPIC, 1)
        wire.send(TOPIC, b"long ago")
        young = {where: begin(wire, f"young-{where}", where) for where in ("last", "first")}
        print(f"a young queue: {young}")
        assert young == {"last": 0, "first": 0}

        for _ in range(10):
            wire.send(TOPIC, bytes(20_000))
        broker.advance("100h")
        wire.send(TOPIC, b"seven")
        broker.advance("1h")
        eight = broker.now().astimezone().strftime(STAMP)
        broker.advance("1s")
        wire.send(TOPIC, b"eight")
        broker.advance("1h")
        wire.send(TOPIC, b"nine")
        places = {where: begin(wire, f"late-{where}", where) for where in ("first", eight, "last")}
        wire.send(TOPIC, b"new")
        seen = {where: read(wire, offset) for where, offset in places.items()}
        for where, bodies in seen.items():
            print(f"from {where:<14}: offset {places[where]:>2}, {bodies}")
        everything = ["seven", "eight", "nine", "new"]
        assert seen == {"first": everything, eight: everything[1:], "last": ["new"]}, seen


if __name__ == "__main__":
    main()
