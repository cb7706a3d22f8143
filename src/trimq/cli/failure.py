"""Exception of a valid command that failed."""

from __future__ import annotations


class CommandFailure(Exception):
    """A command failed. The text is one clear sentence for the user."""
