"""Import of the raw remoting client, which the examples use too."""

from __future__ import annotations

from tools.rocketmq_wire import COMMIT, PATIENCE_S, ROLLBACK, Wire, position_of

__all__ = ["COMMIT", "PATIENCE_S", "ROLLBACK", "Wire", "position_of"]
