"""Corpora of recorded client streams: one file for each port, one line for each stream, its frames in base64."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Hashable, Iterable
from pathlib import Path

from fuzz.frames import FORMATS

FOLDER = Path(__file__).parent / "corpora"

LARGEST_FRAME = 700
MOST_FRAMES = 60
FRAMES_OF_A_KIND = 4

Stream = list[bytes]


def load(port: str, folder: Path = FOLDER) -> list[Stream]:
    lines = (folder / f"{port}.txt").read_text().splitlines()
    return [[b64decode(word) for word in line.split()] for line in lines]


def save(port: str, streams: Iterable[Stream], folder: Path = FOLDER) -> None:
    lines = [" ".join(b64encode(frame).decode() for frame in stream) for stream in streams]
    (folder / f"{port}.txt").write_text("".join(line + "\n" for line in lines))


def select(port: str, recorded: Iterable[bytes]) -> list[Stream]:
    """Chooses few short streams that ask for everything that the recorded ones ask for."""
    form = FORMATS[port]
    streams = sorted(
        {stream: form.cut(stream) for stream in recorded}.values(), key=lambda frames: sum(map(len, frames))
    )
    seen: dict[Hashable, int] = {}
    return [chosen for frames in streams if (chosen := _choose(frames, form.kinds(frames), form.is_stateful, seen))]


def _choose(frames: Stream, kinds: list[Hashable], is_stateful: bool, seen: dict[Hashable, int]) -> Stream:
    """Returns the frames that are wanted; of a stateful stream those before the last of them too."""
    wanted: list[int] = []
    counts = dict(seen)
    for number, (frame, kind) in enumerate(zip(frames[:MOST_FRAMES], kinds[:MOST_FRAMES], strict=True)):
        if len(frame) > LARGEST_FRAME:
            if is_stateful:
                break
        elif counts.get(kind, 0) < FRAMES_OF_A_KIND:
            counts[kind] = counts.get(kind, 0) + 1
            wanted.append(number)
    chosen = list(range(wanted[-1] + 1)) if is_stateful and wanted else wanted
    for number in chosen:
        seen[kinds[number]] = seen.get(kinds[number], 0) + 1
    return [frames[number] for number in chosen]
