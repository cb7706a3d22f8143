"""Consumer groups: members, the assignment of streams to them, and the group coordinator."""
