"""Mutations of recorded streams: wrong numbers, lengths, texts and JSON, spliced, repeated and missing frames. The
same seed gives the same streams."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from fuzz.frames import Format

TEXTS = [
    b"",
    b"\x00",
    b"\n2026-11-17 23:59:59,999 CRITICAL trimq: forged\x1b[31m",
    b"\xff\xfe\xc3",
    "\u2028\u202e\U0001f600".encode(),
    b"../../../../tmp/x",
    b"%2e%2e%2f",
    b".",
    b"..",
    b"a" * 256,
    b"b" * 65_536,
    b"(a+)+$",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
    b"*",
    b"__consumer_offsets",
    b"%RETRY%g",
    b"%DLQ%g",
    b"RMQ_SYS_TRANS_HALF_TOPIC",
    b"SCHEDULE_TOPIC_XXXX",
    b"amq.direct",
    b"root",
    b"anonymous",
    b"9223372036854775808",
    b"-1",
    b"1e999",
    b"NaN",
    b"{{{{",
    b"\x1f\x8b\x08\x00",
    b"\x28\xb5\x2f\xfd",
]

NUMBERS = [0, 1, 2, 127, 128, 255, 256, 32_767, 65_535, 100_001, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
NUMBERS += [(1 << 63) - 1, 1 << 63, (1 << 64) - 1]

VALUES: list[Any] = [None, True, -1, 0, 1 << 31, 1 << 63, 10**30, 0.5, 1e308, "", "x" * 1000, "é\x00\n", [], {}, [[]]]
VALUES += [{"a": {"b": {}}}, "-1", "9223372036854775807", ["a"] * 200, "\ud800"]

MOST_REPEATS = 40
LARGEST_STREAM = 1 << 20
RIGHT_LENGTHS = 0.9


class Mutator:
    """Makes mutated streams of one port from its corpus."""

    def __init__(self, form: Format, corpus: Sequence[list[bytes]]) -> None:
        self._form = form
        self._corpus = corpus

    def stream(self, seed: str) -> list[bytes]:
        random = Random(seed)
        frames = list(random.choice(self._corpus))
        if not self._form.is_stateful and random.random() < 0.3:
            frames += random.choice(self._corpus)
        for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
            frames = self._mutate_list(random, frames) if random.random() < 0.2 else self._mutate_one(random, frames)
        return _limited(frames)

    def _mutate_list(self, random: Random, frames: list[bytes]) -> list[bytes]:
        if not frames:
            return frames
        at = random.randrange(len(frames))
        match random.randrange(6):
            case 0:
                return frames[:at] + frames[at + 1 :]
            case 1:
                return frames[:at] + frames[at : at + 1] * random.randint(2, MOST_REPEATS) + frames[at + 1 :]
            case 2:
                return [*frames[:at], frames[at][: random.randrange(len(frames[at]) + 1)]]
            case 3:
                other = random.randrange(len(frames))
                frames = list(frames)
                frames[at], frames[other] = frames[other], frames[at]
                return frames
            case 4:
                return [*frames[:at], random.choice(random.choice(self._corpus)), *frames[at:]]
            case _:
                return [*frames[:at], random.randbytes(random.randint(1, 64)), *frames[at:]]

    def _mutate_one(self, random: Random, frames: list[bytes]) -> list[bytes]:
        if not frames:
            return frames
        at = random.randrange(len(frames))
        frames = list(frames)
        if random.random() > RIGHT_LENGTHS:
            frames[at] = mutate_bytes(random, frames[at], self._splice(random))
            return frames
        head, content = self._form.open(frames[at])
        if head and random.random() < 0.3:
            head = _mutate_content(random, head[:1], head[1:], b"")
        else:
            content = _mutate_content(random, b"", content, self._splice(random))
        frames[at] = self._form.close(head, content)
        return frames

    def _splice(self, random: Random) -> bytes:
        other = random.choice(random.choice(self._corpus))
        begin = random.randrange(len(other) + 1)
        return other[begin : begin + random.randint(1, 200)]


def _limited(frames: list[bytes]) -> list[bytes]:
    size = 0
    for number, frame in enumerate(frames):
        size += len(frame)
        if size > LARGEST_STREAM:
            return frames[:number]
    return frames


def _mutate_content(random: Random, begin: bytes, content: bytes, spliced: bytes) -> bytes:
    """Mutates JSON as JSON most of the time, everything else as bytes."""
    if content[:1] in (b"{", b"[") and random.random() < 0.75:
        try:
            document = json.loads(content)
        except ValueError:
            pass
        else:
            return begin + json.dumps(mutate_json(random, document)).encode()
    return begin + mutate_bytes(random, content, spliced)


def mutate_json(random: Random, document: Any) -> Any:
    """Replaces, removes or nests one value, or renames one key."""
    if isinstance(document, dict) and document and random.random() < 0.9:
        key = random.choice(list(document))
        match random.randrange(8):
            case 0:
                return {name: value for name, value in document.items() if name != key}
            case 1:
                return {**document, random.choice(["", "x" * 300, "\n", key + " "]): document[key]}
            case _:
                return {**document, key: mutate_json(random, document[key])}
    if isinstance(document, list) and document and random.random() < 0.8:
        at = random.randrange(len(document))
        return [*document[:at], mutate_json(random, document[at]), *document[at + 1 :]]
    if isinstance(document, str) and random.random() < 0.5:
        return mutate_bytes(random, document.encode("utf-8", "surrogatepass"), b"x").decode("utf-8", "replace")
    if random.random() < 0.02:
        nested: Any = document
        for _ in range(random.choice((70, 900))):
            nested = [nested]
        return nested
    return random.choice(VALUES)


def mutate_bytes(random: Random, content: bytes, spliced: bytes) -> bytes:
    at = random.randrange(len(content) + 1)
    match random.randrange(9):
        case 0:  # a bit
            if at == len(content):
                return content
            return content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :]
        case 1 | 2:  # a number in place
            width = random.choice((1, 2, 4, 8))
            number = random.choice(NUMBERS) & ((1 << 8 * width) - 1)
            return content[:at] + number.to_bytes(width, "big") + content[at + width :]
        case 3:  # bytes removed
            return content[:at] + content[at + random.randint(1, 16) :]
        case 4:  # bytes repeated
            length = random.randint(1, 32)
            return content[:at] + content[at : at + length] * random.choice((2, 3, 100)) + content[at + length :]
        case 5:  # a text inserted
            return content[:at] + random.choice(TEXTS) + content[at:]
        case 6:  # a text with its length, in the widths that the protocols use
            text = random.choice(TEXTS)
            width = random.choice((1, 2, 4))
            counted = (len(text) & ((1 << 8 * width) - 1)).to_bytes(width, "big") + text
            return content[:at] + counted + content[at + random.randint(0, 12) :]
        case 7:  # something of another frame
            return content[:at] + spliced + content[at + random.choice((0, len(spliced))) :]
        case _:  # noise
            return content[:at] + random.randbytes(random.randint(1, 8)) + content[at + random.randint(0, 8) :]
