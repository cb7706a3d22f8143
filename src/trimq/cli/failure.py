"""How a command says that it was understood but could not be done."""

from __future__ import annotations


class CommandFailure(Exception):
    """A command failed. Its text is one clear sentence for the person at the keyboard."""
