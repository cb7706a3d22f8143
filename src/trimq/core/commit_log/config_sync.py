"""Import and export of RocketMQ's configuration files beside the commit log. Knows whether the files of the previous
broker are imported yet and which files must be written again; the front-end knows their contents."""

from __future__ import annotations

import logging
from typing import NamedTuple

from trimq.core.commit_log import groups as shared_groups
from trimq.core.commit_log import topics as shared_topics
from trimq.core.commit_log.topics import CommitLogTopics
from trimq.core.metadata.catalogue import Catalogue
from trimq.core.metadata.catalogue import Definition as Stored
from trimq.core.metadata.cursors import Cursors
from trimq.storage.commit_log.config_files import ConfigFiles
from trimq.storage.group_commit.passes import Passes, Ticket

log = logging.getLogger(__name__)

_KIND, _KEY = "shared-log", "owned"


class ConfigChanges(NamedTuple):
    """Kinds of configuration that changed since the previous call of `changes`."""

    topics: bool
    groups: bool
    cursors: bool


class ConfigSync:
    def __init__(
        self, files: ConfigFiles, catalogue: Catalogue, topics: CommitLogTopics, cursors: Cursors, passes: Passes
    ) -> None:
        self.files = files
        self._catalogue = catalogue
        self._topics = topics
        self._cursors = cursors
        self._passes = passes
        self._changed = {shared_topics.KIND, shared_groups.KIND}
        self._seen: Ticket | None = None
        self._cursors_reported = False
        catalogue.watch(shared_topics.KIND, self._note_topic)
        catalogue.watch(shared_groups.KIND, self._note_group)

    @property
    def is_imported(self) -> bool:
        """Whether topics, groups and cursors are in our tables. From then on the files are ignored."""
        return self._catalogue.get(_KIND, _KEY) is not None

    def strays(self) -> dict[str, int]:
        """Topics that have messages but no definition, each with its number of queues."""
        return self._topics.strays()

    def finish_import(self) -> None:
        """Ends the import: everything read is in our tables. Marks the import as complete once they are durable, and
        drops the messages of undefined topics."""
        self._topics.drop_or_redefine_strays()
        if self._cursors.latest is None:
            self._catalogue.put(_KIND, _KEY, True, None)
        else:
            self._passes.on_durable(self._cursors.latest, self._finish)

    def _finish(self, ticket: Ticket) -> None:
        if ticket.refusal is None:
            self._catalogue.put(_KIND, _KEY, True, None)

    def changes(self) -> ConfigChanges:
        found = ConfigChanges(
            shared_topics.KIND in self._changed,
            shared_groups.KIND in self._changed,
            not self._cursors_reported or self._cursors.latest is not self._seen,
        )
        self._changed, self._seen, self._cursors_reported = set(), self._cursors.latest, True
        return found

    def mark_all_changed(self) -> None:
        """Marks everything as changed again, after the files could not be written."""
        self._changed, self._cursors_reported = {shared_topics.KIND, shared_groups.KIND}, False

    def _note_topic(self, key: str, found: Stored | None) -> None:
        self._changed.add(shared_topics.KIND)

    def _note_group(self, key: str, found: Stored | None) -> None:
        self._changed.add(shared_groups.KIND)
