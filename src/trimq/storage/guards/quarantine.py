"""Folders that no definition names after a start that found its last definitions lost: they may be somebody's, so they
are kept under another name until a person has decided."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from trimq.storage.io.files import Files

log = logging.getLogger(__name__)

_SUFFIX = ".set-aside"


def is_quarantined(name: str) -> bool:
    return name.endswith(_SUFFIX)


def quarantine(files: Files, folder: str) -> None:
    """The new name is durable once the folder around is synced."""
    try:
        files.rename(folder, folder + _SUFFIX)
    except OSError as error:
        log.warning("%s belongs to no definition, of which the last were lost, and stays: %s", folder, error)
    else:
        log.warning(
            "%s belongs to no definition, of which the last were lost: it is kept as %s%s. If anything is missing, stop"
            " the broker, restore the folder tables from a copy and take the ending off again; if not, remove it",
            folder,
            folder,
            _SUFFIX,
        )


def any_quarantined(names: Iterable[str]) -> bool:
    return any(map(is_quarantined, names))
