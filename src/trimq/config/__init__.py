"""What may be set, and how it is given. See `settings` for the settings themselves."""

from trimq.config.address import Address, Advertised, parse_address, told_address
from trimq.config.declaration import Declaration, declarations
from trimq.config.loading import load, suggest_flag
from trimq.config.settings import Amqp, Http, Kafka, Limits, RocketMQ, Settings, Storage

__all__ = [
    "Address",
    "Advertised",
    "Amqp",
    "Declaration",
    "Http",
    "Kafka",
    "Limits",
    "RocketMQ",
    "Settings",
    "Storage",
    "declarations",
    "load",
    "parse_address",
    "suggest_flag",
    "told_address",
]
