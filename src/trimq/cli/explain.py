"""`trimq explain`: one stored message as a client of each protocol sees it."""

from __future__ import annotations

import argparse
import re
from typing import Any
from urllib.parse import quote

from trimq.cli.api import add_address_flag, connect
from trimq.cli.output import print_json, print_table
from trimq.errors import StartupError

_PLACE = re.compile(r"(?P<topic>.+?)(?:/(?P<stream>\d+))?@(?P<offset>\d+)")
_FACES = ("kafka", "rocketmq", "amqp")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=explain)
    parser.add_argument(
        "place", metavar="PLACE", help="topic, stream and offset, as orders/0@15; without a stream, stream 0"
    )
    parser.add_argument("--as", dest="face", choices=_FACES, help="show the view of one protocol only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_address_flag(parser)


def explain(arguments: argparse.Namespace) -> int:
    found = _PLACE.fullmatch(arguments.place)
    if found is None:
        raise StartupError(f"{arguments.place} is not a place: give topic, stream and offset, as orders/0@15")
    path = f"/api/explain?topic={quote(found['topic'], safe='')}&stream={found['stream'] or 0}&offset={found['offset']}"
    answer = connect(arguments.http).get(path, dict[str, Any])
    views = answer["views"]
    if arguments.face:
        answer["views"] = views = {arguments.face: views[arguments.face]}
    if arguments.json:
        print_json(answer)
        return 0
    print_table(("stored", "value"), list(answer["stored"].items()))
    print()
    print_table(("neutral", "value"), _rows(answer["neutral"]))
    for face, view in views.items():
        print()
        print_table((face, "value"), _rows(view))
    return 0


def _rows(value: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """One row for each field; those of tables and lists of pairs have the name of the table before theirs."""
    rows: list[tuple[str, object]] = []
    for name, item in value.items():
        if isinstance(item, dict):
            rows += _rows(item, f"{prefix}{name}.")
        elif isinstance(item, list):
            pairs = [(each[0], each[1]) if isinstance(each, list) else (each, "") for each in item]
            rows += [(f"{prefix}{name}.{key}", shown) for key, shown in pairs]
        else:
            rows.append((f"{prefix}{name}", item))
    return rows
