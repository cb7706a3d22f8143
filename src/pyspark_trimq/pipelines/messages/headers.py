"""Fields of messages as Spark columns: a header or property by name, and the identity of a message."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from trimq.errors import StartupError

# Headers and properties that the three protocols and common libraries use for the message id.
ID_HEADERS = ("message-id", "message_id", "messageId", "id", "ce_id")
ID_PROPERTIES = ("UNIQ_KEY", "message_id", "message-id")


def header(name: str) -> Column:
    """Returns the value of the last header with this name, in bytes; null if there is none."""
    found = F.filter(F.col("headers"), lambda each: each["key"] == F.lit(name))
    return F.get(found, F.size(found) - 1)["value"]


def header_text(name: str) -> Column:
    return header(name).cast("string")


def property_text(name: str) -> Column:
    return F.col("properties")[F.lit(name)]


def first_of(*columns: Column) -> Column:
    """Returns the first value that is not null."""
    return F.coalesce(*columns) if columns else F.lit(None)


def identity(by: str) -> Column:
    """Returns the identity of a message in bytes, by `key`, `value`, `id`, `header:NAME` or `property:NAME`."""
    kind, _, name = by.partition(":")
    match kind, bool(name):
        case (("key" | "value"), False):
            return F.col(kind)
        case "id", False:
            return first_of(
                *(header(each) for each in ID_HEADERS), *(property_text(each).cast("binary") for each in ID_PROPERTIES)
            )
        case "header", True:
            return header(name)
        case "property", True:
            return property_text(name).cast("binary")
    raise StartupError(f"the identity of a message must be key, value, id, header:NAME or property:NAME, not {by!r}")
