"""`trimq firehose` against a double of the HTTP port."""

from __future__ import annotations


def test_the_firehose_is_turned_on_listed_and_turned_off(trimq, broker_http) -> None:
    broker_http.answers["GET", "/api/firehose"] = 200, {"firehose": [{"vhost": "shop"}]}
    broker_http.answers["PUT", "/api/firehose/%2F"] = 204, None
    broker_http.answers["DELETE", "/api/firehose/shop"] = 204, None
    started = trimq("firehose", "on", "--http", broker_http.address)
    assert (started.returncode, started.stdout) == (0, "firehose is on in /\n")
    listed = trimq("firehose", "list", "--http", broker_http.address)
    assert listed.stdout.split() == ["vhost", "shop"]
    stopped = trimq("firehose", "off", "--vhost", "shop", "--http", broker_http.address)
    assert (stopped.returncode, stopped.stdout) == (0, "firehose is off in shop\n")
