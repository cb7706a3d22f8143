"""exchange.declare, delete, bind and unbind."""

from __future__ import annotations

from trimq.core.routing.bindings import Binding
from trimq.errors.queues import DefaultExchange
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.contract import Reply


def strip_line_ends(name: str) -> str:
    """Removes carriage returns and line feeds from a declared name, as RabbitMQ does."""
    return name.replace("\r", "").replace("\n", "")


def declare(context: Context, channel: Channel, method: methods.ExchangeDeclare) -> Reply | None:
    broker, caller = context.broker, context.caller
    name = strip_line_ends(method.exchange)
    if method.is_passive:
        if not name:
            raise DefaultExchange
        broker.exchanges.get(caller, name)
        ticket = None
    else:
        ticket = broker.exchanges.declare(
            caller, name, method.type, method.is_durable, method.is_auto_delete, method.is_internal, method.arguments
        )
    return context.answer_when_durable(channel, method, ticket, methods.ExchangeDeclareOk(), method.no_wait)


def delete(context: Context, channel: Channel, method: methods.ExchangeDelete) -> Reply | None:
    ticket = context.broker.exchanges.delete(context.caller, strip_line_ends(method.exchange), method.if_unused)
    return context.answer_when_durable(channel, method, ticket, methods.ExchangeDeleteOk(), method.no_wait)


def bind(context: Context, channel: Channel, method: methods.ExchangeBind) -> Reply | None:
    ticket = context.broker.exchanges.bind(context.caller, _binding(method), context.owner)
    return context.answer_when_durable(channel, method, ticket, methods.ExchangeBindOk(), method.no_wait)


def unbind(context: Context, channel: Channel, method: methods.ExchangeUnbind) -> Reply | None:
    ticket = context.broker.exchanges.unbind(context.caller, _binding(method), context.owner)
    return context.answer_when_durable(channel, method, ticket, methods.ExchangeUnbindOk(), method.no_wait)


def _binding(method: methods.ExchangeBind | methods.ExchangeUnbind) -> Binding:
    source, destination = strip_line_ends(method.source), strip_line_ends(method.destination)
    return Binding(source, destination, False, method.routing_key, method.arguments)
