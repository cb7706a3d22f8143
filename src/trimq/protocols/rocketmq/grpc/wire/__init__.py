"""Codecs of apache.rocketmq.v2: messages, enumerations, status codes and responses encoded by hand."""
