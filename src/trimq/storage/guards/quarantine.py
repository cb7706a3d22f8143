"""Quarantines folders without a definition after a start that found definitions lost in a crash. They may hold data, so
they are kept under another name until an operator decides."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from trimq.storage.io.files import Files

log = logging.getLogger(__name__)

_SUFFIX = ".set-aside"


def is_quarantined(name: str) -> bool:
    return name.endswith(_SUFFIX)


def quarantine(files: Files, folder: str) -> None:
    """Renames the folder. The new name is durable once the parent folder is synced."""
    try:
        files.rename(folder, folder + _SUFFIX)
    except OSError as error:
        log.warning(
            "%s: no definition refers to this folder (definitions lost in a crash); cannot rename it: %s",
            folder,
            error,
        )
    else:
        log.warning(
            "%s: no definition refers to this folder (definitions lost in a crash); keeping it as %s%s. If data is"
            " missing, stop the broker, restore the folder tables from a copy and rename it back; if not, remove it",
            folder,
            folder,
            _SUFFIX,
        )


def any_quarantined(names: Iterable[str]) -> bool:
    return any(map(is_quarantined, names))
