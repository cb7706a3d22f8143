"""Looks up offsets of topics that a pipeline reads, and creates the topics that it writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import closing

from pyspark_trimq.broker.client import StreamBounds, open_broker_client
from pyspark_trimq.mistakes import TopicMistake
from pyspark_trimq.pipelines.runner.broker_admin import create_kafka_topic, kafka_cleanup_policies
from pyspark_trimq.pipelines.runner.context import PipelineContext
from trimq.errors import StartupError

OTHER_LAYOUTS = {"commit-log": "a RocketMQ topic", "queue-log": "an AMQP queue"}


def topic_ends(context: PipelineContext, topic: str, namespace: str = "") -> dict[int, StreamBounds]:
    """Returns the offsets of each partition. Raises TopicMistake if the topic does not exist."""
    with closing(
        open_broker_client(context.bootstrap, namespace, True, False, context.login(), context.encryption())
    ) as client:
        return client.ends(topic)


def source_ends(context: PipelineContext, topic: str) -> dict[int, StreamBounds]:
    """Like `topic_ends`, in the namespace of the source options."""
    return topic_ends(context, topic, context.options.get("namespace", ""))


def subscribed_ends(context: PipelineContext, subscribed: Mapping[str, str]) -> dict[str, dict[int, StreamBounds]]:
    """Returns the offsets of all subscribed topics, by name or pattern. Raises TopicMistake if one does not exist."""
    namespace, pattern = context.options.get("namespace", ""), subscribed.get("subscribePattern", "")
    with closing(
        open_broker_client(context.bootstrap, namespace, True, False, context.login(), context.encryption())
    ) as client:
        if pattern:
            return {topic: client.ends(topic) for topic in client.topics() if re.fullmatch(pattern, topic)}
        return {topic: client.ends(topic) for topic in subscribed["subscribe"].split(",")}


def compacted_topics(context: PipelineContext, topics: Collection[str]) -> set[str]:
    """Returns those of the topics whose records are deleted by key. Topics that the broker does not describe are left
    out."""
    if not topics:
        return set()
    if context.is_http():
        admin, namespace = context.administration(), context.options.get("namespace", "")
        policies = {topic: admin.cleanup_policy(topic, namespace) for topic in topics}
    else:
        policies = kafka_cleanup_policies(context.bootstrap, context.login(), context.encryption(), topics)
    return {topic for topic, policy in policies.items() if "compact" in policy}


def ensure_topic(context: PipelineContext, topic: str, partitions: int) -> None:
    """Creates the topic if it does not exist. Raises StartupError if it exists but is not a Kafka topic."""
    if is_writable(context, topic):
        return
    if context.is_http():
        context.administration().create_topic(topic, partitions)
    else:
        create_kafka_topic(context.bootstrap, context.login(), context.encryption(), topic, partitions)


def is_writable(context: PipelineContext, topic: str) -> bool:
    """Returns False if the topic does not exist. Raises StartupError if it has another layout: the sink writes to Kafka
    topics only."""
    with closing(
        open_broker_client(context.bootstrap, "", True, False, context.login(), context.encryption())
    ) as client:
        try:
            home = client.home(topic)
        except TopicMistake:
            return False
    if home in OTHER_LAYOUTS:
        raise StartupError(
            f"{topic!r} is {OTHER_LAYOUTS[home]}, but rows are written to Kafka topics only: name another topic"
        )
    return True
