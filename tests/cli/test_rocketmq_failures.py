"""RocketMQ's dead letters over HTTP, and with `trimq failures`."""

from __future__ import annotations

import json
from urllib.request import urlopen

from cli.conftest import Run
from compat.rocketmq_wire import Wire, position_of

from trimq.testing import Broker


def test_a_dead_letter_of_rocketmq_is_listed_and_sent_again_once(trimq: Run) -> None:
    with Broker() as broker, Wire(broker.addresses["rocketmq_broker"]) as wire:
        sent = wire.send("t", b"hard", queue=3)
        wire.done(36, {"offset": position_of(sent["msgId"]), "group": "g", "delayLevel": -1})
        assert wire.bodies("%DLQ%g") == [b"hard"]
        with urlopen(f"{broker.http}/api/failures", timeout=20) as answer:
            (failure,) = json.load(answer)["failures"]
        assert failure["time_ms"] > 0
        assert {name: failure[name] for name in failure if name != "time_ms"} == {
            "id": 0, "queue": "t", "vhost": "/", "group": "g", "stream": 3, "offset": 0, "reason": "rejected",
            "attempts": 1, "redriven": False, "bytes": 4, "body": "aGFyZA==",
        }  # fmt: skip
        listed = trimq("failures", "list", "--http", broker.addresses["http"])
        assert listed.stdout.splitlines()[1].split()[:5] == ["0", "t", "g", "rejected", "1"]
        redriven = trimq("failures", "redrive", "0", "--http", broker.addresses["http"])
        assert (redriven.returncode, redriven.stdout) == (0, "sent 0 again\n")
        assert wire.bodies("%RETRY%g") == [b"hard"]
        assert trimq("failures", "redrive", "0", "--http", broker.addresses["http"]).returncode == 1
        assert wire.bodies("%RETRY%g") == [b"hard"]
