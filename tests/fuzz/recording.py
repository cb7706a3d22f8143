"""Recorder of client streams, for new corpora. As a plugin it records what the clients of any tests send:

    PYTHONPATH=tests TRIMQ_RECORDED=FOLDER python -m pytest -p fuzz.recording tests/compat/test_pika.py …
    PYTHONPATH=tests python -m fuzz.recording FOLDER

The second command chooses from all recorded streams, and writes the corpora. Brokers that the tests start as processes
of their own are recorded, too."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import Any

import tools.broker
from fuzz.corpus import save, select
from fuzz.frames import FORMATS
from trimq.cli.main import main
from trimq.server.connection.session import Session

VARIABLE = "TRIMQ_RECORDED"
LONGEST = 1 << 20

_SEND_CODE = 10
_BY_CONVERSATION = {"KafkaConversation": "kafka", "AmqpConversation": "amqp", "HttpConversation": "http"}


def port_of(conversation: Any) -> str:
    inner = getattr(conversation, "_inner", conversation)
    name = type(inner).__name__
    if name == "RocketMQConversation":
        return "rocketmq_broker" if _SEND_CODE in inner._handlers else "rocketmq"
    return _BY_CONVERSATION.get(name, "rocketmq_grpc")


def record_sessions(folder: Path) -> None:
    """Lets every session of this process write what it receives into a file of its own."""
    get_buffer, buffer_updated, connection_lost = (
        Session.get_buffer,
        Session.buffer_updated,
        Session.connection_lost,
    )
    received: dict[Session, bytearray] = {}
    buffers: dict[Session, Any] = {}

    def tapped_get_buffer(session: Session, size_hint: int) -> Any:
        buffers[session] = buffer = get_buffer(session, size_hint)
        return buffer

    def tapped_buffer_updated(session: Session, nbytes: int) -> None:
        taken = received.setdefault(session, bytearray())
        if len(taken) < LONGEST:
            taken += memoryview(buffers.pop(session))[:nbytes]
        buffer_updated(session, nbytes)

    def tapped_connection_lost(session: Session, error: Exception | None) -> None:
        if taken := received.pop(session, None):
            (folder / f"{port_of(session._conversation)}-{uuid.uuid4().hex}").write_bytes(taken)
        connection_lost(session, error)

    for name, tapped in (
        ("get_buffer", tapped_get_buffer),
        ("buffer_updated", tapped_buffer_updated),
        ("connection_lost", tapped_connection_lost),
    ):
        setattr(Session, name, tapped)


def write_corpora(folder: Path) -> None:
    for port in FORMATS:
        streams = select(port, sorted(path.read_bytes() for path in folder.glob(f"{port}-*")))
        save(port, streams)
        frames = sum(map(len, streams))
        size = sum(len(frame) for stream in streams for frame in stream)
        print(f"{port}: {len(streams)} streams, {frames} frames, {size} bytes")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_corpora(Path(sys.argv[1]))
    else:  # as a broker
        record_sessions(Path(sys.argv.pop(1)))
        sys.exit(main())
elif VARIABLE in os.environ:
    _folder = Path(os.environ[VARIABLE])
    _folder.mkdir(parents=True, exist_ok=True)
    record_sessions(_folder)
    tools.broker.COMMAND = (sys.executable, "-m", "fuzz.recording", str(_folder))  # type: ignore[assignment]
    _tests = Path(__file__).parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_tests), str(_tests.parent)])
