"""Users with their password hashes, stored in the catalogue. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.passwords import unknown_password
from trimq.errors import InvalidSetting, UnknownUser
from trimq.storage.group_commit.passes import Ticket

_KIND = "user"


class User(msgspec.Struct, frozen=True):
    """An administrator may do everything, in every namespace."""

    name: str
    password_hash: str
    is_administrator: bool = False
    tags: tuple[str, ...] = ()
    """Labels, besides `administrator`. `impersonator` allows any `user_id` in the user's messages."""


UserListener = Callable[[str, User | None, User | None], None]
"""Receives the name, the user before the change and the user after it."""


class Users:
    def __init__(self, catalogue: Catalogue, random_bytes: Callable[[int], bytes]) -> None:
        self._catalogue = catalogue
        self._listeners: list[UserListener] = []
        # A login with an unknown name takes as long as any other, so that the time does not reveal which users exist.
        self._nobody = unknown_password(random_bytes)
        self._users = {key: msgspec.convert(found.value, User) for key, found in catalogue.all(_KIND)}
        catalogue.watch(_KIND, self._changed)

    def __bool__(self) -> bool:
        return bool(self._users)

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def all(self) -> list[User]:
        return list(self._users.values())

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def password_hash(self, name: str) -> str:
        """Returns a hash of no known password for an unknown user."""
        user = self._users.get(name)
        return self._nobody if user is None else user.password_hash

    def put(self, user: User) -> Ticket:
        if not user.name:
            raise InvalidSetting("user", "the user name is empty")
        found = self._catalogue.get(_KIND, user.name)
        version = None if found is None else found.version
        return self._catalogue.put(_KIND, user.name, msgspec.to_builtins(user), version)

    def remove(self, name: str) -> Ticket:
        found = self._catalogue.get(_KIND, name)
        if found is None:
            raise UnknownUser(name)
        return self._catalogue.delete(_KIND, name, found.version)

    def on_change(self, listener: UserListener) -> None:
        self._listeners.append(listener)

    def _changed(self, key: str, definition: Definition | None) -> None:
        before, after = self._users.get(key), None
        if definition is None:
            self._users.pop(key, None)
        else:
            after = self._users[key] = msgspec.convert(definition.value, User)
        for listener in self._listeners:
            listener(key, before, after)
