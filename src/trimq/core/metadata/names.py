"""Names of topics and queues across the layouts. Each name belongs to one layout; the layouts, which do not see each
other, ask here before they take a new one."""

from __future__ import annotations

from collections.abc import Callable

from trimq.model import Layout, TopicName


class NameRegistry:
    """Tells which layout has a name. Names are unique within a namespace across all layouts.

    Stores no names: each layout adds a lookup in its own index when it is built. So an answer always follows the
    creations, deletions and rollbacks of the layouts, and recovery has nothing to restore. A layout that is not built
    yet, or is closed, has no names."""

    def __init__(self) -> None:
        self._lookups: dict[Layout, Callable[[TopicName], bool]] = {}

    def add(self, layout: Layout, has: Callable[[TopicName], bool]) -> None:
        """Adds the lookup of a layout. `has` says whether the layout has a topic or queue of this name."""
        self._lookups[layout] = has

    def find(self, name: TopicName, other_than: Layout | None = None) -> Layout | None:
        """Returns the layout that has this name, None if the name is free. `other_than` is not asked: a layout knows
        more about its own names, as whether one is being deleted."""
        for layout, has in self._lookups.items():
            if layout is not other_than and has(name):
                return layout
        return None
