"""A server that speaks remoting by a script: name server and brokers in one, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from trimq.wire.remoting import RESPONSE, Command, RemotingConnection, encode_command, frame

ROUTE, SEND, SEND_BATCH, HEARTBEAT, UNREGISTER = 105, 310, 320, 34, 35


class Answer(NamedTuple):
    code: int = 0
    fields: Mapping[str, str] = {}
    body: bytes = b""
    remark: str | None = None
    version: int | None = None
    after_s: float = 0.0


SILENT = None
Script = Callable[["Server", Command], Answer | None]


class Server:
    """One listener. `requests` are all that it received; connections can be cut."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Command] = []
        self.address = ""
        self.connected = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        self._writers.append(writer)
        connection = RemotingConnection()
        try:
            while data := await reader.read(65536):
                connection.receive(data)
                while (command := connection.next_event()) is not None:
                    self.requests.append(command)
                    answer = self.script(self, command)
                    if answer is not None and not command.is_one_way:
                        frames = encode_answer(answer, command) + answer.body
                        if answer.after_s:
                            asyncio.get_running_loop().call_later(answer.after_s, writer.write, frames)
                        else:
                            writer.write(frames)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def cut(self) -> None:
        """Closes all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def asked(self, *codes: int) -> list[Command]:
        return [command for command in self.requests if command.code in codes]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Server]:
    server = Server(script)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    server.address = f"{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        server.cut()
        await asyncio.sleep(0)


def encode_answer(answer: Answer, command: Command) -> bytes:
    """Encodes the frame up to its body; `version` is that of another release of RocketMQ."""
    head = encode_command(answer.code, command.opaque, RESPONSE, answer.fields, answer.remark, len(answer.body))
    if answer.version is None:
        return head
    header = json.dumps({**json.loads(head[8:]), "version": answer.version}).encode()
    return frame(header, len(answer.body))


def route_of(brokers: Mapping[str, str], queues: int = 4, perm: int = 6) -> Answer:
    """Returns a route with these brokers, each with so many queues."""
    data = {
        "brokerDatas": [
            {"brokerName": name, "brokerAddrs": {"0": address}, "cluster": "c"} for name, address in brokers.items()
        ],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": perm, "topicSysFlag": 0}
            for name in brokers
        ],
    }
    return Answer(body=json.dumps(data).encode())


def stored(command: Command, offset: int = 0, code: int = 0) -> Answer:
    """Returns the response to a send that was stored."""
    queue = command.fields["e"]
    return Answer(code, {"msgId": "0" * 32, "queueId": queue, "queueOffset": str(offset)})


def storing(server: Server, command: Command) -> Answer | None:
    """Script of a server that is its own only broker and stores everything."""
    if command.code == ROUTE:
        return route_of({"a": server.address})
    return stored(command) if command.code in (SEND, SEND_BATCH) else Answer()
