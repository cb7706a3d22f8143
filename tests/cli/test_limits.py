"""`trimq limits` against a double of the HTTP port."""

from __future__ import annotations

import json

LIMITS = {"memory_percent": 60, "low_water_bytes": 1000, "channel_max": 2047}


def test_limits_are_shown(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/limits"] = 200, LIMITS
    done = trimq("limits", "show", "--http", broker_http.address)
    assert done.stdout.split() == [
        "limit",
        "value",
        "memory_percent",
        "60",
        "low_water_bytes",
        "1000",
        "bytes",
        "channel_max",
        "2047",
    ]
    assert json.loads(trimq("limits", "show", "--json", "--http", broker_http.address).stdout) == LIMITS


def test_only_the_limits_that_are_given_are_set(trimq, broker_http) -> None:
    broker_http.answers["PATCH", "/api/limits"] = 200, LIMITS
    done = trimq("limits", "set", "--memory-percent", "0", "--http", broker_http.address)
    assert (done.returncode, broker_http.asked) == (0, [("PATCH", "/api/limits", {"memory_percent": 0})])
    nothing = trimq("limits", "set", "--http", broker_http.address)
    assert (nothing.returncode, "--channel-max" in nothing.stderr) == (2, True)
