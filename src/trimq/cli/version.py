"""Version of the installed package."""

from __future__ import annotations


def version() -> str:
    """Returns the installed version, or `(not installed)` for a plain source tree."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return installed_version("trimq")
    except PackageNotFoundError:
        return "(not installed)"
