"""The topic `orders` as a streaming table, and the number of orders of each customer."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    reader = spark.readStream.format("trimq").option("bootstrap", spark.conf.get("trimq.bootstrap"))
    rows = reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()
    return rows.selectExpr("cast(key as string) as customer", "cast(value as string) as text", "timestamp", "offset")


@dp.materialized_view
def customers() -> DataFrame:
    return spark.read.table("orders").groupBy("customer").count()


dp.create_sink("copies", "trimq", {"bootstrap": spark.conf.get("trimq.bootstrap"), "topic": "order-copies"})


@dp.append_flow(target="copies")
def copies() -> DataFrame:
    return spark.readStream.table("orders").selectExpr("customer as key", "text as value")
