"""Copies the JavaScript libraries of the console from the npm registry into `src/trimq/console/static/vendor`, and
writes their versions, licences and digests into `SOURCES.toml` there. `python -m tools.vendor_console`"""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

VENDOR = Path(__file__).parent.parent / "src" / "trimq" / "console" / "static" / "vendor"
SOURCES = VENDOR / "SOURCES.toml"


class Library(NamedTuple):
    """`replaced`: texts that are rewritten, since a browser finds modules by address only. `appended`: makes a module
    of a plain script."""

    package: str
    version: str
    licence: str
    source: str
    file: str
    replaced: tuple[tuple[str, str], ...] = ()
    appended: str = ""


LIBRARIES = (
    Library("preact", "11.2.0", "MIT", "dist/preact.mjs", "preact.mjs"),
    Library("preact", "11.2.0", "MIT", "hooks/dist/hooks.mjs", "hooks.mjs", (('"preact"', '"./preact.mjs"'),)),
    Library("htm", "3.1.1", "Apache-2.0", "dist/htm.mjs", "htm.mjs"),
    Library("uplot", "1.6.32", "MIT", "dist/uPlot.iife.min.js", "uplot.mjs", appended="\nexport default uPlot;\n"),
    Library("uplot", "1.6.32", "MIT", "dist/uPlot.min.css", "uplot.css"),
)


def text_of(library: Library, packed: str) -> str:
    """Returns the library as the console has it, from the text in its package."""
    text = "\n".join(line for line in packed.splitlines() if not line.startswith("//# sourceMappingURL"))
    for old, new in library.replaced:
        if old not in text:
            raise ValueError(f"{library.package}: {old} does not occur in {library.source}")
        text = text.replace(old, new)
    return f"{text.rstrip()}\n{library.appended}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sources(texts: dict[str, str]) -> str:
    """Returns the list of all libraries, with the digests of these texts by file name."""
    lines = ["# Made by python -m tools.vendor_console."]
    for library in LIBRARIES:
        lines += ["", f'["{library.file}"]', f'package = "{library.package}"', f'version = "{library.version}"']
        lines += [f'licence = "{library.licence}"', f'source = "{library.source}"']
        lines += [f'sha256 = "{digest(texts[library.file])}"']
    return "\n".join(lines) + "\n"


def _packed(library: Library, folder: Path) -> str:
    name = f"{library.package}@{library.version}"
    done = subprocess.run(["npm", "pack", name, "--silent"], cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        found = archive.extractfile(f"package/{library.source}")
        assert found is not None
        return found.read().decode()


def main() -> None:
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for library in LIBRARIES:
            texts[library.file] = text_of(library, _packed(library, Path(folder)))
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (VENDOR / name).write_text(text)
    SOURCES.write_text(sources(texts))


if __name__ == "__main__":
    main()
