"""Settings of the broker and their loading from flags, environment and file. `settings` declares them."""

from trimq.config.address import Address, Advertised, advertised_address, parse_address
from trimq.config.amqp import Amqp
from trimq.config.declaration import Declaration, declarations, readable_number
from trimq.config.kafka import Kafka
from trimq.config.loading import EVERY_INTERFACE, load, suggest_flag
from trimq.config.login_policy import exposed_listeners, is_login_required
from trimq.config.rocketmq import RocketMQ
from trimq.config.settings import Failures, Http, Limits, Log, Security, Settings, Storage
from trimq.config.tls import Tls

__all__ = [
    "EVERY_INTERFACE",
    "Address",
    "Advertised",
    "Amqp",
    "Declaration",
    "Failures",
    "Http",
    "Kafka",
    "Limits",
    "Log",
    "RocketMQ",
    "Security",
    "Settings",
    "Storage",
    "Tls",
    "advertised_address",
    "declarations",
    "exposed_listeners",
    "is_login_required",
    "load",
    "parse_address",
    "readable_number",
    "suggest_flag",
]
