"""`trimq definitions`: exports and imports users, virtual hosts, exchanges, queues, bindings and policies."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from trimq.cli.api import add_address_flag, connect
from trimq.cli.output import print_json


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    exporting = actions.add_parser("export", help="print all definitions as one JSON document, with password hashes")
    exporting.set_defaults(run=export_definitions)
    importing = actions.add_parser("import", help="import the definitions of such a document into the broker")
    importing.set_defaults(run=import_definitions)
    importing.add_argument("file", metavar="FILE", help="the JSON document, or - for standard input")
    for action in (exporting, importing):
        add_address_flag(action)


def export_definitions(arguments: argparse.Namespace) -> int:
    print_json(connect(arguments.http).get("/api/definitions", dict[str, Any]))
    return 0


def import_definitions(arguments: argparse.Namespace) -> int:
    document = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    connect(arguments.http).send("/api/definitions", document)
    print("imported the definitions")
    return 0
