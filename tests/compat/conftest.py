"""Lets the judges say what they found wrong, as tests do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "compat.judges", "compat.administration", "compat.queue_judges", "compat.rocketmq_judges"
)
