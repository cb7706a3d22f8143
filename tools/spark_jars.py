"""Spark's own Kafka connector, for a comparison and for a compatibility test."""

from __future__ import annotations

from pathlib import Path

from tools.maven import classpath

# Without dependencies: those are part of PySpark, and the POM files name repositories that may be unreachable. Not
# every version of all four is available everywhere; these run on PySpark 4.3.0.
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


def kafka_connector() -> list[str]:
    """Returns the paths of the JAR files; raises JavaMissing without Java or Maven."""
    folder = Path(classpath(ARTIFACTS, alone=True)).parent
    return sorted(map(str, folder.glob("*.jar")))
