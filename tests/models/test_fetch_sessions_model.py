"""A client that continues a fetch session, against a broker with changing partitions."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from protocols.kafka.fetch_exchanges import ask, cache, exchange

from trimq.protocols.kafka.messages.fetch import FetchRequest, FetchResponse


class Client(RuleBasedStateMachine):
    """A client that applies all responses has the broker's state, although responses omit unchanged partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = cache(max_sessions=1)
        self.broker = dict.fromkeys(range(4), (0, 0, 0))  # error, high watermark, log start
        self.wanted: set[int] = set()
        self.knows: dict[int, tuple[int, int, int]] = {}
        self.id = self.epoch = 0

    @rule(partition=st.integers(0, 3), error=st.sampled_from([0, 0, 3]), end=st.integers(0, 3), start=st.integers(0, 3))
    def change(self, partition: int, error: int, end: int, start: int) -> None:
        self.broker[partition] = (error, -1, -1) if error else (0, end, start)

    @rule(partitions=st.sets(st.integers(0, 3)))
    def open(self, partitions: set[int]) -> None:
        self.wanted, self.knows = set(partitions), {}
        response = self._exchange(ask(self.id, 0, *partitions))
        self.id, self.epoch = response.session_id, 1
        assert self.id > 0

    @precondition(lambda self: self.epoch)
    @rule(added=st.sets(st.integers(0, 3)), forgotten=st.sets(st.integers(0, 3)))
    def continue_session(self, added: set[int], forgotten: set[int]) -> None:
        self.wanted = (self.wanted | added) - forgotten
        for partition in forgotten:
            self.knows.pop(partition, None)
        response = self._exchange(ask(self.id, self.epoch, *added, forget=tuple(forgotten)))
        assert response.session_id == (self.id if self.wanted else 0)
        self.id, self.epoch = response.session_id, self.epoch + 1 if self.wanted else 0
        # A session without partitions ends; as in Kafka, the request is then answered as one without a session.
        answered = self.wanted or added
        assert self.knows == {partition: self.broker[partition] for partition in answered}

    def _exchange(self, request: FetchRequest) -> FetchResponse:
        fields = ("error_code", "high_watermark", "log_start_offset")
        changed = {f"p{index}": dict(zip(fields, state, strict=True)) for index, state in self.broker.items()}
        response = exchange(self.sessions, request, **changed)
        for topic in response.responses:
            for data in topic.partitions:
                self.knows[data.partition_index] = (data.error_code, data.high_watermark, data.log_start_offset)
        return response

    @invariant()
    def partitions_are_counted(self) -> None:
        kept = sum(len(session.wanted) for session in self.sessions._sessions.values())
        assert self.sessions._partitions == kept


TestClient = Client.TestCase
TestClient.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
