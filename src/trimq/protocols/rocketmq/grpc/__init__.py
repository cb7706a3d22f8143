"""RocketMQ 5 over gRPC (apache.rocketmq.v2): front-end, messages, clients and handlers, without the transport."""
