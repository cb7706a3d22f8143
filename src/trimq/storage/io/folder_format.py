"""Which format a data folder has: a number in a small file, written when the folder is first used and looked at before
anything else is opened. Knows nothing of what the format is."""

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
    """Whether the folder says which format it has; a folder that nobody has used yet does not. StartupError: it is one
    that this broker does not know."""
    if NAME not in files.names(""):
        return False
    try:
        file = files.open(NAME)
        found = msgspec.json.decode(file.read(0, 4096), type=_Format)
    except msgspec.MsgspecError as error:
        raise StartupError(f"the file {NAME} of the data folder does not say which format it has: {error}") from None
    if found.version > VERSION:
        raise StartupError(
            f"the data folder has format {found.version}, but this version of TriMQ knows formats up to {VERSION}: "
            "use the version that wrote it, or a later one"
        )
    return True


def require_format(files: Files) -> None:
    """As `check_format`; a folder that does not say it yet says it from now on."""
    if not check_format(files):
        replace_file(files, NAME, msgspec.json.encode(_Format(VERSION)) + b"\n")
