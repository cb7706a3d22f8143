"""Where a group begins to read a queue in which it has not committed an offset yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True)
class Start:
    """`Start.LAST`: messages from now on. `Start.FIRST`: all that are stored. `Start.at(time)`: those stored since."""

    name: str
    at_ms: int = 0

    LAST: ClassVar[Start]
    FIRST: ClassVar[Start]

    @classmethod
    def at(cls, moment: datetime | str) -> Start:
        """Takes a datetime, or digits like "20210701080000". Without a time zone the time is local."""
        if isinstance(moment, str):
            try:
                moment = datetime.strptime(moment, "%Y%m%d%H%M%S")
            except ValueError:
                raise ValueError(f"{moment!r} is no time like 20210701080000") from None
        return cls("CONSUME_FROM_TIMESTAMP", int(moment.timestamp() * 1000))


Start.LAST = Start("CONSUME_FROM_LAST_OFFSET")
Start.FIRST = Start("CONSUME_FROM_FIRST_OFFSET")
