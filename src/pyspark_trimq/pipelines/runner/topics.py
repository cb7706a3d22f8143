"""Topics that a pipeline reads or writes: their offsets, and creating the target."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing

from pyspark_trimq.broker.client import StreamBounds, open_broker_client
from pyspark_trimq.mistakes import TopicMistake
from pyspark_trimq.pipelines.runner.broker_admin import create_kafka_topic
from pyspark_trimq.pipelines.runner.how import How
from trimq.errors import StartupError

OTHER_LAYOUTS = {"commit-log": "a RocketMQ topic", "queue-log": "an AMQP queue"}


def topic_ends(how: How, topic: str, namespace: str = "") -> dict[int, StreamBounds]:
    """Where each partition begins and ends. Mistake: there is no such topic."""
    with closing(open_broker_client(how.bootstrap, namespace, True, False, how.login(), how.encryption())) as client:
        return client.ends(topic)


def source_ends(how: How, topic: str) -> dict[int, StreamBounds]:
    """As `topic_ends`, of a topic or queue that is read: in the namespace that was asked for."""
    return topic_ends(how, topic, how.options.get("namespace", ""))


def subscribed_ends(how: How, subscribed: Mapping[str, str]) -> dict[str, dict[int, StreamBounds]]:
    """Of all topics that are asked for, those that match a pattern too. Mistake: there is no such topic."""
    namespace, pattern = how.options.get("namespace", ""), subscribed.get("subscribePattern", "")
    with closing(open_broker_client(how.bootstrap, namespace, True, False, how.login(), how.encryption())) as client:
        if pattern:
            return {topic: client.ends(topic) for topic in client.topics() if re.fullmatch(pattern, topic)}
        return {topic: client.ends(topic) for topic in subscribed["subscribe"].split(",")}


def ensure_topic(how: How, topic: str, partitions: int) -> None:
    """Make the topic if there is none. StartMistake: there is one that rows cannot be written to."""
    if is_writable(how, topic):
        return
    if how.is_http():
        how.administration().create_topic(topic, partitions)
    else:
        create_kafka_topic(how.bootstrap, how.login(), how.encryption(), topic, partitions)


def is_writable(how: How, topic: str) -> bool:
    """False: there is no topic of that name. StartMistake: there is one of another home, and the sink writes to topics
    of Kafka's home alone."""
    with closing(open_broker_client(how.bootstrap, "", True, False, how.login(), how.encryption())) as client:
        try:
            home = client.home(topic)
        except TopicMistake:
            return False
    if home in OTHER_LAYOUTS:
        raise StartupError(
            f"{topic!r} is {OTHER_LAYOUTS[home]}, but rows are written to Kafka topics: name another topic"
        )
    return True
