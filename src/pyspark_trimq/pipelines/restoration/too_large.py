"""Explains a write that the target refused because of the size of a record: which record, and which setting limits
it."""

from __future__ import annotations

import re

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.broker.client import find_kafka_address
from pyspark_trimq.broker.encryption import client_settings
from pyspark_trimq.mistakes import Mistake, Unreachable
from pyspark_trimq.pipelines.restoration.pieces import record_size
from pyspark_trimq.pipelines.runner.broker_admin import QUIET_LOGGER, TIMEOUT_S
from pyspark_trimq.pipelines.runner.context import PipelineContext

LIMIT = "max.message.bytes"
_SIZE_ERROR = re.compile(r"size too large|MSG_SIZE_TOO_LARGE|RECORD_LIST_TOO_LARGE|record batch larger", re.IGNORECASE)


def too_large_message(context: PipelineContext, frame: DataFrame, target: str, failure: str) -> str | None:
    """Returns the error text, or None if the size of a record was not the cause."""
    widest = (
        frame.select("topic", "partition", "offset", record_size(frame).alias("size")).orderBy(F.desc("size")).first()
    )
    limit = max_message_bytes(context, target)
    if widest is None or ((limit is None or widest["size"] <= limit) and not _SIZE_ERROR.search(failure)):
        return None
    takes = f"{limit} bytes" if limit is not None else "it"
    return (
        f"message {widest['offset']} of {widest['topic']} {widest['partition']} has {widest['size']} bytes, but "
        f"{target!r} does not accept {'more than ' if limit is not None else ''}{takes}: raise {LIMIT} of {target!r} "
        "or compress it (--option compression=zstd)"
    )


def max_message_bytes(context: PipelineContext, topic: str) -> int | None:
    """Returns the setting of the topic, or None if the broker does not return it."""
    login, encryption = context.login(), context.encryption()
    try:
        address = find_kafka_address(context.bootstrap, login, encryption=encryption)
        settings = client_settings(login, encryption, {})
        admin = AdminClient({"bootstrap.servers": address, **settings}, logger=QUIET_LOGGER)
        asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)], request_timeout=TIMEOUT_S)
        config = next(iter(asked.values())).result(TIMEOUT_S)
        return int(config[LIMIT].value)
    except (KafkaException, KeyError, ValueError, TypeError, TimeoutError, Mistake, Unreachable):
        return None
