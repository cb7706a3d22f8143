"""Codecs of RocketMQ remoting: frames, headers, JSON bodies, receipts, codes and responses."""
