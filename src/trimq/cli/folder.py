"""The flag that names the data folder, for commands that work on a stopped broker."""

from __future__ import annotations

import argparse
import os

from trimq.config import declarations


def add_folder_flag(parser: argparse.ArgumentParser) -> None:
    data_dir = next(declaration for declaration in declarations() if declaration.key == "data_dir")
    parser.add_argument(
        data_dir.flag,
        metavar="FOLDER",
        default=os.environ.get(data_dir.variable) or data_dir.default,
        help=f"the data folder (or {data_dir.variable}; default: %(default)s)",
    )
