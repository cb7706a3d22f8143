"""Listeners that need optional packages. Checks whether these are installed, without importing them."""

from __future__ import annotations

from importlib.util import find_spec

from trimq.errors import StartupError

_NEEDED = {"rocketmq.grpc_listen": ("grpc", ("google.protobuf",))}


def missing_listeners() -> list[str]:
    """Returns the keys of listeners whose packages are missing; these are off unless set explicitly."""
    return [key for key, (_, packages) in _NEEDED.items() if not all(map(_is_there, packages))]


def require_installed(key: str) -> None:
    """Raises StartupError if the packages of this listener are not installed."""
    if key in missing_listeners():
        extra, packages = _NEEDED[key]
        names = " and ".join(packages)
        raise StartupError(f'{key} needs {names}: pip install "trimq[{extra}]", or set it to off')


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing, too
        return False
