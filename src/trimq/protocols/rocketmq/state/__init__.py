"""Owns small state that RocketMQ handlers share: identity, system topics, statistics, offset resets, sent ids."""
