"""Which listeners need packages that are not installed. Loads none of them."""

from __future__ import annotations

from importlib.util import find_spec

from trimq.errors import StartupError

_NEEDED = {"rocketmq.grpc_listen": ("grpc", ("google.protobuf",))}


def missing_listeners() -> list[str]:
    """The keys of those that cannot be opened: they are off unless somebody asks for them."""
    return [key for key, (_, packages) in _NEEDED.items() if not all(map(_is_there, packages))]


def require_installed(key: str) -> None:
    """StartupError: the listener was asked for, and its packages are not there."""
    if key in missing_listeners():
        extra, packages = _NEEDED[key]
        names = " and ".join(packages)
        raise StartupError(f'{key} needs {names}: pip install "trimq[{extra}]", or set it to off')


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
