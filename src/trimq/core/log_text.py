"""Text of clients in log lines: escaped, so that it can neither forge a line nor control a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

# Control characters, line and paragraph separators, and characters that change the direction of text.
_NOT_SHOWN = "\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069"
_IN_TEXT = re.compile(f"[{_NOT_SHOWN}]")
# Bytes that are not UTF-8 are surrogates in names of AMQP; no stream can write them.
_IN_JSON = re.compile(f"[{_NOT_SHOWN}\ud800-\udfff]")


def escape(text: str) -> str:
    """Replaces characters that would start a line of their own or control a terminal by their escapes in Python."""
    return _IN_TEXT.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def json_line(fields: Mapping[str, object]) -> str:
    """Returns one line of JSON without control characters."""
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
