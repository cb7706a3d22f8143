"""Methods of the classes connection, channel and access."""

from __future__ import annotations

from trimq.protocols.amqp.methods.declaration import (
    EMPTY,
    Arguments,
    Bit,
    Long,
    LongString,
    Method,
    Octet,
    Short,
    ShortString,
    method,
)

# -- connection


@method(10, 10, "connection.start")
class ConnectionStart(Method):
    version_major: Octet = 0
    version_minor: Octet = 0
    server_properties: Arguments = EMPTY
    mechanisms: LongString = b""
    locales: LongString = b""


@method(10, 11, "connection.start-ok")
class ConnectionStartOk(Method):
    client_properties: Arguments = EMPTY
    mechanism: ShortString = ""
    response: LongString = b""
    locale: ShortString = ""


@method(10, 20, "connection.secure")
class ConnectionSecure(Method):
    challenge: LongString = b""


@method(10, 21, "connection.secure-ok")
class ConnectionSecureOk(Method):
    response: LongString = b""


@method(10, 30, "connection.tune")
class ConnectionTune(Method):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@method(10, 31, "connection.tune-ok")
class ConnectionTuneOk(Method):
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


@method(10, 40, "connection.open")
class ConnectionOpen(Method):
    vhost: ShortString = ""
    reserved_1: ShortString = ""
    reserved_2: Bit = False


@method(10, 41, "connection.open-ok")
class ConnectionOpenOk(Method):
    reserved_1: ShortString = ""


@method(10, 50, "connection.close")
class ConnectionClose(Method):
    reply_code: Short = 0
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


@method(10, 51, "connection.close-ok")
class ConnectionCloseOk(Method): ...


@method(10, 60, "connection.blocked")
class ConnectionBlocked(Method):
    reason: ShortString = ""


@method(10, 61, "connection.unblocked")
class ConnectionUnblocked(Method): ...


@method(10, 70, "connection.update-secret")
class ConnectionUpdateSecret(Method):
    secret: LongString = b""
    reason: ShortString = ""


@method(10, 71, "connection.update-secret-ok")
class ConnectionUpdateSecretOk(Method): ...


# -- channel


@method(20, 10, "channel.open")
class ChannelOpen(Method):
    reserved_1: ShortString = ""


@method(20, 11, "channel.open-ok")
class ChannelOpenOk(Method):
    reserved_1: LongString = b""


@method(20, 20, "channel.flow")
class ChannelFlow(Method):
    active: Bit = False


@method(20, 21, "channel.flow-ok")
class ChannelFlowOk(Method):
    active: Bit = False


@method(20, 40, "channel.close")
class ChannelClose(Method):
    reply_code: Short = 0
    reply_text: ShortString = ""
    class_id: Short = 0
    method_id: Short = 0


@method(20, 41, "channel.close-ok")
class ChannelCloseOk(Method): ...


# -- access


@method(30, 10, "access.request")
class AccessRequest(Method):
    realm: ShortString = ""
    is_exclusive: Bit = False
    is_passive: Bit = False
    active: Bit = False
    write: Bit = False
    read: Bit = False


@method(30, 11, "access.request-ok")
class AccessRequestOk(Method):
    ticket: Short = 0
