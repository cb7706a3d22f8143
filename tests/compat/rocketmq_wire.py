"""The raw remoting client, where the tests look for it; the examples use it too."""

from __future__ import annotations

from tools.rocketmq_wire import COMMIT, PATIENCE_S, ROLLBACK, Wire, position_of

__all__ = ["COMMIT", "PATIENCE_S", "ROLLBACK", "Wire", "position_of"]
