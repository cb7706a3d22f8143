"""Spark's own Kafka connector, for comparing with it and for seeing that it works with this broker."""

from __future__ import annotations

from pathlib import Path

from tools.maven import classpath

# Each alone: what they need beyond these comes with PySpark, and their own descriptions name places that may be out of
# reach. Not every version of all four can be had everywhere; these run on PySpark 4.3.0.
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


def kafka_connector() -> list[str]:
    """The files. JavaMissing: there is no Java or Maven on this machine."""
    folder = Path(classpath(ARTIFACTS, alone=True)).parent
    return sorted(map(str, folder.glob("*.jar")))
