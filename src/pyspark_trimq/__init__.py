"""Spark data source and sink for TriMQ: `spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with
`format("trimq")`.

Spark finds this module by its name. An error during its import would hide every other Python data source too, so it
imports nothing but PySpark. All other modules are imported on first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    # Older versions of PySpark lack some of these classes.
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource", "register"]


@contextmanager
def _reject_old_pyspark() -> Iterator[None]:
    """Raises Mistake if the installed PySpark lacks a class that the body imports."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("pyspark."):
            raise
        import pyspark

        from pyspark_trimq.mistakes import Mistake

        raise Mistake(
            f"format('trimq') needs PySpark 4.3, found {pyspark.__version__}: pip install 'trimq[spark]'"
        ) from None


class DefaultSource(DataSource):
    """Data source `trimq`: one row per message of a topic or queue."""

    @classmethod
    def name(cls) -> str:
        return "trimq"

    def schema(self) -> StructType:
        from pyspark_trimq.arrow.columns import row_schema
        from pyspark_trimq.source.options import read_source_options

        return row_schema(read_source_options(self.options).has_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        with _reject_old_pyspark():
            from pyspark_trimq.source.batch_reader import BatchReader

        return BatchReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with _reject_old_pyspark():
            from pyspark_trimq.source.stream_reader import StreamReader

        return StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with _reject_old_pyspark():
            from pyspark_trimq.sink.writers import BatchWriter

        return BatchWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        with _reject_old_pyspark():
            from pyspark_trimq.sink.writers import StreamWriter

        return StreamWriter(schema, self.options)


def register(spark: SparkSession | Any) -> None:
    """Registers `format("trimq")` in any session, and lets its workers run the driver's Python if none was chosen.
    Raises Mistake with what to do if the chosen Python cannot run the source. Without this call, Spark finds the source
    only if the Python that it starts (`python3`, or PYSPARK_PYTHON) has this package."""
    from pyspark_trimq.runtime.session_python import prepare_python

    prepare_python(spark)
    spark.dataSource.register(DefaultSource)
