"""Format version of a data folder: a number in a small file, written when the folder is first used and checked before
anything else is opened. Does not know the format itself."""

from __future__ import annotations

from typing import Annotated

import msgspec

from trimq.errors import StartupError
from trimq.storage.io.atomic_file import replace_file
from trimq.storage.io.files import Files

NAME = "format"
VERSION = 1


class _Format(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=1)]


def check_format(files: Files) -> bool:
    """Returns whether the folder has a format file; an unused folder has none. Raises StartupError if this broker does
    not support the format."""
    if NAME not in files.names(""):
        return False
    try:
        file = files.open(NAME)
        found = msgspec.json.decode(file.read(0, 4096), type=_Format)
    except msgspec.MsgspecError as error:
        raise StartupError(f"the data folder's file {NAME} is not a valid format file: {error}") from None
    if found.version > VERSION:
        raise StartupError(
            f"the data folder has format {found.version}, but this version of TriMQ supports formats up to {VERSION}: "
            "use the version that wrote it, or a later one"
        )
    return True


def require_format(files: Files) -> None:
    """Checks the format as `check_format` does, and writes the format file if there is none."""
    if not check_format(files):
        replace_file(files, NAME, msgspec.json.encode(_Format(VERSION)) + b"\n")
