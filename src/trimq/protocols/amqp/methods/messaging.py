"""Methods of the classes basic, confirm and tx."""

from __future__ import annotations

from trimq.protocols.amqp.methods.declaration import (
    EMPTY,
    AnyString,
    Arguments,
    Bit,
    Long,
    LongLong,
    Method,
    Short,
    ShortString,
    method,
)

# -- basic


@method(60, 10, "basic.qos")
class BasicQos(Method):
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    is_global: Bit = False


@method(60, 11, "basic.qos-ok")
class BasicQosOk(Method): ...


@method(60, 20, "basic.consume")
class BasicConsume(Method):
    ticket: Short = 0
    queue: ShortString = ""
    consumer_tag: ShortString = ""
    no_local: Bit = False
    no_ack: Bit = False
    is_exclusive: Bit = False
    no_wait: Bit = False
    arguments: Arguments = EMPTY


@method(60, 21, "basic.consume-ok")
class BasicConsumeOk(Method):
    consumer_tag: ShortString = ""


@method(60, 30, "basic.cancel")
class BasicCancel(Method):
    consumer_tag: ShortString = ""
    no_wait: Bit = False


@method(60, 31, "basic.cancel-ok")
class BasicCancelOk(Method):
    consumer_tag: ShortString = ""


@method(60, 40, "basic.publish")
class BasicPublish(Method):
    ticket: Short = 0
    exchange: AnyString = ""
    routing_key: AnyString = ""
    is_mandatory: Bit = False
    is_immediate: Bit = False


@method(60, 50, "basic.return")
class BasicReturn(Method):
    reply_code: Short = 0
    reply_text: ShortString = ""
    exchange: AnyString = ""
    routing_key: AnyString = ""


@method(60, 60, "basic.deliver")
class BasicDeliver(Method):
    consumer_tag: ShortString = ""
    delivery_tag: LongLong = 0
    is_redelivered: Bit = False
    exchange: AnyString = ""
    routing_key: AnyString = ""


@method(60, 70, "basic.get")
class BasicGet(Method):
    ticket: Short = 0
    queue: ShortString = ""
    no_ack: Bit = False


@method(60, 71, "basic.get-ok")
class BasicGetOk(Method):
    delivery_tag: LongLong = 0
    is_redelivered: Bit = False
    exchange: AnyString = ""
    routing_key: AnyString = ""
    message_count: Long = 0


@method(60, 72, "basic.get-empty")
class BasicGetEmpty(Method):
    reserved_1: ShortString = ""


@method(60, 80, "basic.ack")
class BasicAck(Method):
    delivery_tag: LongLong = 0
    is_multiple: Bit = False


@method(60, 90, "basic.reject")
class BasicReject(Method):
    delivery_tag: LongLong = 0
    requeue: Bit = False


@method(60, 100, "basic.recover-async")
class BasicRecoverAsync(Method):
    requeue: Bit = False


@method(60, 110, "basic.recover")
class BasicRecover(Method):
    requeue: Bit = False


@method(60, 111, "basic.recover-ok")
class BasicRecoverOk(Method): ...


@method(60, 120, "basic.nack")
class BasicNack(Method):
    delivery_tag: LongLong = 0
    is_multiple: Bit = False
    requeue: Bit = False


# -- confirm


@method(85, 10, "confirm.select")
class ConfirmSelect(Method):
    no_wait: Bit = False


@method(85, 11, "confirm.select-ok")
class ConfirmSelectOk(Method): ...


# -- tx


@method(90, 10, "tx.select")
class TxSelect(Method): ...


@method(90, 11, "tx.select-ok")
class TxSelectOk(Method): ...


@method(90, 20, "tx.commit")
class TxCommit(Method): ...


@method(90, 21, "tx.commit-ok")
class TxCommitOk(Method): ...


@method(90, 30, "tx.rollback")
class TxRollback(Method): ...


@method(90, 31, "tx.rollback-ok")
class TxRollbackOk(Method): ...
