"""Columns of a row: names, types, and the schema check of a reader. Knows the types of Spark and Arrow, but no
messages."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_trimq.mistakes import Mistake

HEADER_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

# The first seven and the headers equal those of Spark's Kafka source.
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADER_TYPE,
    "producerId": LongType(),
    "producerEpoch": IntegerType(),
    "sequence": IntegerType(),
    "tags": StringType(),
    "keys": ArrayType(StringType()),
    "properties": MapType(StringType(), StringType()),
}


def row_schema(has_headers: bool) -> StructType:
    """Returns the schema of a reader that names no columns."""
    return StructType([StructField(name, type) for name, type in TYPES.items() if has_headers or name != "headers"])


def check_schema(schema: StructType) -> None:
    """Raises Mistake if a column does not exist or has another type."""
    for field in schema.fields:
        expected = TYPES.get(field.name)
        if expected is None:
            raise Mistake(f"there is no column {field.name!r}; there are {', '.join(TYPES)}")
        if field.dataType != expected:
            raise Mistake(
                f"the column {field.name!r} is {expected.simpleString()}, not {field.dataType.simpleString()}; "
                "select and cast it after the load"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the exact schema that Spark expects of each record batch."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
