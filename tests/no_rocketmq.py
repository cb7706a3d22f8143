"""Settings of a broker without RocketMQ, in each of their forms, for the tests of the other front-ends."""

from __future__ import annotations

from trimq.config import RocketMQ

NO_ROCKETMQ = RocketMQ(listen=None, broker_listen=None, grpc_listen=None)
NO_ROCKETMQ_KEYS = {"rocketmq.listen": "off", "rocketmq.broker_listen": "off", "rocketmq.grpc_listen": "off"}
NO_ROCKETMQ_FLAGS = [
    *("--rocketmq-listen", "off", "--rocketmq-broker-listen", "off"),
    *("--rocketmq-grpc-listen", "off"),
]
