"""Options of the sink and columns of its input, checked before anything is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from pyspark_trimq.arrow.columns import HEADER_TYPE
from pyspark_trimq.broker.encryption import CA_FILE, Encryption, client_settings, read_encryption
from pyspark_trimq.broker.login import LOGIN_OPTIONS, Login, read_login
from pyspark_trimq.broker.option_reader import OptionReader
from pyspark_trimq.mistakes import Mistake

_NAMES = (
    "bootstrap",
    "topic",
    "delivery",
    "compression",
    "writeId",
    *LOGIN_OPTIONS,
    CA_FILE,
    "checkpointLocation",
    "queryName",
    "path",
)
_CLIENT_PREFIX = "kafka."
_DELIVERIES = ("exactly-once", "at-least-once")
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

_TEXT_OR_BYTES = (BinaryType(), StringType())
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "headers": (HEADER_TYPE,),
    "timestamp": (TimestampType(),),
    "partition": (IntegerType(),),
    "topic": (StringType(),),
}


@dataclasses.dataclass(frozen=True)
class SinkOptions:
    """`client` are settings for librdkafka, passed on unchanged."""

    bootstrap: str
    topic: str | None
    is_exactly_once: bool
    compression: str
    write_id: str | None
    login: Login | None
    encryption: Encryption | None
    client: dict[str, str] = dataclasses.field(repr=False)


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises Mistake if an option is unknown or its value is invalid."""
    client = {
        name[len(_CLIENT_PREFIX) :]: value for name, value in given.items() if name.lower().startswith(_CLIENT_PREFIX)
    }
    rest = {name: value for name, value in given.items() if not name.lower().startswith(_CLIENT_PREFIX)}
    options = OptionReader(rest, _NAMES)
    delivery = options.text("delivery") or _DELIVERIES[0]
    if delivery not in _DELIVERIES:
        raise Mistake(f"the option delivery is {delivery!r}: it must be {' or '.join(_DELIVERIES)}")
    compression = options.text("compression") or "none"
    if compression not in _COMPRESSIONS:
        raise Mistake(f"the option compression is {compression!r}: it must be one of {', '.join(_COMPRESSIONS)}")
    bootstrap = options.required("bootstrap", "host:9092 or http://host:8180")
    login, encryption = read_login(options.text), read_encryption(bootstrap, options.text(CA_FILE))
    client_settings(login, encryption, client)  # refuses settings that would send the password unencrypted
    return SinkOptions(
        bootstrap=bootstrap,
        topic=options.text("topic"),
        is_exactly_once=delivery == _DELIVERIES[0],
        compression=compression,
        write_id=options.text("writeId"),
        login=login,
        encryption=encryption,
        client=client,
    )


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises Mistake if rows of this schema cannot be written as messages."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        types = _COLUMNS.get(field.name)
        if types is None:
            raise Mistake(f"the sink has no column {field.name!r}: select only {', '.join(_COLUMNS)}")
        if not any(_matches(field.dataType, each) for each in types):
            wanted = " or ".join(each.simpleString() for each in types)
            raise Mistake(f"the column {field.name!r} must be {wanted}, not {field.dataType.simpleString()}")
    if "value" not in names:
        raise Mistake("there is no column 'value': the sink needs it as the message body, binary or string")
    if options.topic is None and "topic" not in names:
        raise Mistake("give the option topic, or a column named 'topic'")


def _matches(given: DataType, wanted: DataType) -> bool:
    """Compares types without their nullability."""
    return given.simpleString() == wanted.simpleString()
