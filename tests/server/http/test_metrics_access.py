"""Who may read /metrics, and what is shown: `http.metrics`."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request

import pytest

from tools.users import make_users
from trimq.testing import Broker


def scrape(broker: Broker, login: str = "") -> str:
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    with urllib.request.urlopen(urllib.request.Request(broker.http + "/metrics", headers=headers), timeout=20) as page:
        return page.read().decode()  # type: ignore[no-any-return]


def test_without_names_no_group_and_no_topic_is_shown() -> None:
    with Broker(http_metrics="no-names") as broker:
        assert "trimq_topics " in scrape(broker)
        assert "trimq_group_lag" not in scrape(broker)
    with Broker() as broker:
        assert "trimq_group_lag" in scrape(broker)


def test_with_logins_a_scrape_needs_one_once_there_are_users() -> None:
    with Broker(http_metrics="login") as broker:
        assert "trimq_topics " in scrape(broker)
        make_users(broker.http, monitor={})
        for wrong in ("", "monitor:wrong"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                scrape(broker, wrong)
            assert refused.value.code == 401
            refused.value.close()
        assert "trimq_group_lag" in scrape(broker, "monitor:monitor's")
