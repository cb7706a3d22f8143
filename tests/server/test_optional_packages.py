"""Listeners with missing packages: off by default, and an error message if one is requested."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

import pytest

from trimq.errors import StartupError
from trimq.server.optional_packages import missing_listeners, require_installed

GRPC = "rocketmq.grpc_listen"


class Absent:
    """Import hook that hides protobuf."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "google.protobuf":
            raise ModuleNotFoundError(name)
        return None


def test_an_installed_package_is_not_missing() -> None:
    assert missing_listeners() == []
    require_installed(GRPC)


def test_a_listener_without_its_package_is_off_and_requesting_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("google.protobuf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    assert missing_listeners() == [GRPC]
    with pytest.raises(StartupError, match=r'needs google.protobuf: pip install "trimq\[grpc\]", or set it'):
        require_installed(GRPC)
