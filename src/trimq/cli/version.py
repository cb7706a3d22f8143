"""Which release this is."""

from __future__ import annotations


def version() -> str:
    """The installed version; a source tree that nobody installed has none."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("trimq")
    except PackageNotFoundError:
        return "(not installed)"
