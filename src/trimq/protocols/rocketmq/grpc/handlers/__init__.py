"""Handlers of the gRPC methods of apache.rocketmq.v2."""
