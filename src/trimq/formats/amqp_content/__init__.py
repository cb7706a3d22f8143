"""Codec of stored AMQP contents: properties, field tables, body."""
