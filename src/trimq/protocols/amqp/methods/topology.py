"""Methods of the classes exchange and queue."""

from __future__ import annotations

from trimq.protocols.amqp.methods.declaration import EMPTY, Arguments, Bit, Long, Method, Short, ShortString, method

# -- exchange


@method(40, 10, "exchange.declare")
class ExchangeDeclare(Method):
    ticket: Short = 0
    exchange: ShortString = ""
    type: ShortString = ""
    is_passive: Bit = False
    is_durable: Bit = False
    is_auto_delete: Bit = False
    is_internal: Bit = False
    no_wait: Bit = False
    arguments: Arguments = EMPTY


@method(40, 11, "exchange.declare-ok")
class ExchangeDeclareOk(Method): ...


@method(40, 20, "exchange.delete")
class ExchangeDelete(Method):
    ticket: Short = 0
    exchange: ShortString = ""
    if_unused: Bit = False
    no_wait: Bit = False


@method(40, 21, "exchange.delete-ok")
class ExchangeDeleteOk(Method): ...


@method(40, 30, "exchange.bind")
class ExchangeBind(Method):
    ticket: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: Arguments = EMPTY


@method(40, 31, "exchange.bind-ok")
class ExchangeBindOk(Method): ...


@method(40, 40, "exchange.unbind")
class ExchangeUnbind(Method):
    ticket: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: Arguments = EMPTY


@method(40, 51, "exchange.unbind-ok")
class ExchangeUnbindOk(Method): ...


# -- queue


@method(50, 10, "queue.declare")
class QueueDeclare(Method):
    ticket: Short = 0
    queue: ShortString = ""
    is_passive: Bit = False
    is_durable: Bit = False
    is_exclusive: Bit = False
    is_auto_delete: Bit = False
    no_wait: Bit = False
    arguments: Arguments = EMPTY


@method(50, 11, "queue.declare-ok")
class QueueDeclareOk(Method):
    queue: ShortString = ""
    message_count: Long = 0
    consumer_count: Long = 0


@method(50, 20, "queue.bind")
class QueueBind(Method):
    ticket: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    no_wait: Bit = False
    arguments: Arguments = EMPTY


@method(50, 21, "queue.bind-ok")
class QueueBindOk(Method): ...


@method(50, 30, "queue.purge")
class QueuePurge(Method):
    ticket: Short = 0
    queue: ShortString = ""
    no_wait: Bit = False


@method(50, 31, "queue.purge-ok")
class QueuePurgeOk(Method):
    message_count: Long = 0


@method(50, 40, "queue.delete")
class QueueDelete(Method):
    ticket: Short = 0
    queue: ShortString = ""
    if_unused: Bit = False
    if_empty: Bit = False
    no_wait: Bit = False


@method(50, 41, "queue.delete-ok")
class QueueDeleteOk(Method):
    message_count: Long = 0


@method(50, 50, "queue.unbind")
class QueueUnbind(Method):
    ticket: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    arguments: Arguments = EMPTY


@method(50, 51, "queue.unbind-ok")
class QueueUnbindOk(Method): ...
