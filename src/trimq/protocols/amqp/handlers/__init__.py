"""Tables of handlers by method. A server does not accept methods that are missing here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.protocols.amqp import methods
from trimq.protocols.amqp.channel import Channel
from trimq.protocols.amqp.handlers import basic, channel, connection, exchange, publish, queue
from trimq.protocols.amqp.handlers.context import Context
from trimq.protocols.contract import Reply

# Each handler takes its own method class; the type of the table cannot express this.
ConnectionHandler = Callable[[Context, Any], Reply | None]
Handler = Callable[[Context, Channel, Any], Reply | None]

CONNECTION_HANDLERS: dict[int, ConnectionHandler] = {
    methods.ConnectionStartOk.ID: connection.start_ok,
    methods.ConnectionTuneOk.ID: connection.tune_ok,
    methods.ConnectionOpen.ID: connection.open_vhost,
    methods.ConnectionClose.ID: connection.close,
    methods.ConnectionUpdateSecret.ID: connection.update_secret,
}

HANDLERS: dict[int, Handler] = {
    methods.ChannelFlow.ID: channel.flow,
    methods.AccessRequest.ID: channel.request_access,
    methods.ExchangeDeclare.ID: exchange.declare,
    methods.ExchangeDelete.ID: exchange.delete,
    methods.ExchangeBind.ID: exchange.bind,
    methods.ExchangeUnbind.ID: exchange.unbind,
    methods.QueueDeclare.ID: queue.declare,
    methods.QueueBind.ID: queue.bind,
    methods.QueueUnbind.ID: queue.unbind,
    methods.QueuePurge.ID: queue.purge,
    methods.QueueDelete.ID: queue.delete,
    methods.BasicQos.ID: basic.qos,
    methods.BasicConsume.ID: basic.consume,
    methods.BasicCancel.ID: basic.cancel,
    methods.BasicCancelOk.ID: basic.cancel_ok,
    methods.BasicGet.ID: basic.get,
    methods.BasicNack.ID: basic.nack,
    methods.BasicReject.ID: basic.reject,
    methods.BasicRecover.ID: basic.recover,
    methods.BasicRecoverAsync.ID: basic.recover_async,
    methods.ConfirmSelect.ID: publish.select_confirms,
    methods.TxSelect.ID: publish.select_transactions,
    methods.TxCommit.ID: publish.commit,
    methods.TxRollback.ID: publish.rollback,
}
