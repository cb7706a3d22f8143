"""Decides from the settings whether clients must log in. Knows no user."""

from __future__ import annotations

from trimq.config.declaration import declarations
from trimq.config.settings import Settings


def exposed_listeners(settings: Settings) -> list[str]:
    """Returns the keys of the listeners that other machines can reach."""
    found = []
    for declaration in declarations():
        section = getattr(settings, declaration.section, None)
        address = getattr(section, declaration.field) if declaration.is_listener else None
        if address is not None and not address.is_loopback:
            found.append(declaration.key)
    return found


def is_login_required(settings: Settings) -> bool:
    """Returns whether only users may do anything, also while none is defined."""
    if settings.security.mode is None:
        return bool(exposed_listeners(settings))
    return settings.security.mode == "required"
