"""Declaration of the messages of apache.rocketmq.v2 as text: names, types and field numbers. Must not know protobuf;
`wire` builds the classes.

A line declares a message and its fields, numbered from 1 in order; an indented line continues it. Forms of a field:

    name:type     field of this type; without a type a string
    name*         repeated field
    name?         optional field: its presence is tracked
    name{}        map from string to string
    choice|name   member of the oneof `choice`

`Time` and `Span` are google.protobuf.Timestamp and Duration. A type with a dot is an enumeration nested in a message.
Example: `Broker name id:int32 endpoints:Endpoints` declares

    message Broker { string name = 1; int32 id = 2; Endpoints endpoints = 3; }
"""

from __future__ import annotations

PACKAGE = "apache.rocketmq.v2"
SERVICE = "MessagingService"

MESSAGES = """
FilterExpression type:FilterType expression
RetryPolicy max_attempts:int32 strategy|exponential_backoff:ExponentialBackoff
    strategy|customized_backoff:CustomizedBackoff
ExponentialBackoff initial:Span max:Span multiplier:float
CustomizedBackoff next*:Span
Resource resource_namespace name
SubscriptionEntry topic:Resource expression:FilterExpression
Address host port:int32
Endpoints scheme:AddressScheme addresses*:Address
Broker name id:int32 endpoints:Endpoints
MessageQueue topic:Resource id:int32 permission:Permission broker:Broker accept_message_types*:MessageType
Digest type:DigestType checksum
SystemProperties tag? keys* message_id body_digest:Digest body_encoding:Encoding message_type:MessageType
    born_timestamp:Time born_host store_timestamp?:Time store_host delivery_timestamp?:Time receipt_handle?
    queue_id:int32 queue_offset?:int64 invisible_duration?:Span delivery_attempt?:int32 message_group? trace_context?
    orphaned_transaction_recovery_duration?:Span dead_letter_queue?:DeadLetterQueue lite_topic? priority?:int32
DeadLetterQueue topic message_id
Message topic:Resource user_properties{} system_properties:SystemProperties body:bytes
Assignment message_queue:MessageQueue
Status code:Code message
UA language:Language version platform hostname
Settings client_type?:ClientType access_point?:Endpoints backoff_policy?:RetryPolicy request_timeout?:Span
    pub_sub|publishing:Publishing pub_sub|subscription:Subscription user_agent:UA metric:Metric
Publishing topics*:Resource max_body_size:int32 validate_message_type:bool
Subscription group?:Resource subscriptions*:SubscriptionEntry fifo?:bool receive_batch_size?:int32
    long_polling_timeout?:Span lite_subscription_quota?:int32 max_lite_topic_size?:int32
Metric on:bool endpoints?:Endpoints
OffsetOption offset_type|policy:OffsetOption.Policy offset_type|offset:int64 offset_type|tail_n:int64
    offset_type|timestamp:int64
QueryRouteRequest topic:Resource endpoints:Endpoints
QueryRouteResponse status:Status message_queues*:MessageQueue
SendMessageRequest messages*:Message
SendResultEntry status:Status message_id transaction_id offset:int64 recall_handle
SendMessageResponse status:Status entries*:SendResultEntry
QueryAssignmentRequest topic:Resource group:Resource endpoints:Endpoints
QueryAssignmentResponse status:Status assignments*:Assignment
ReceiveMessageRequest group:Resource message_queue:MessageQueue filter_expression:FilterExpression batch_size:int32
    invisible_duration?:Span auto_renew:bool long_polling_timeout?:Span attempt_id?
ReceiveMessageResponse content|status:Status content|message:Message content|delivery_timestamp:Time
AckMessageEntry message_id receipt_handle lite_topic?
AckMessageRequest group:Resource topic:Resource entries*:AckMessageEntry
AckMessageResultEntry message_id receipt_handle status:Status
AckMessageResponse status:Status entries*:AckMessageResultEntry
ForwardMessageToDeadLetterQueueRequest group:Resource topic:Resource receipt_handle message_id delivery_attempt:int32
    max_delivery_attempts:int32 lite_topic?
ForwardMessageToDeadLetterQueueResponse status:Status
HeartbeatRequest group?:Resource client_type:ClientType
HeartbeatResponse status:Status
EndTransactionRequest topic:Resource message_id transaction_id resolution:TransactionResolution
    source:TransactionSource trace_context
EndTransactionResponse status:Status
PrintThreadStackTraceCommand nonce
ReconnectEndpointsCommand nonce
ThreadStackTrace nonce thread_stack_trace?
VerifyMessageCommand nonce message:Message
VerifyMessageResult nonce
RecoverOrphanedTransactionCommand message:Message transaction_id
NotifyUnsubscribeLiteCommand lite_topic
TelemetryCommand status?:Status command|settings:Settings command|thread_stack_trace:ThreadStackTrace
    command|verify_message_result:VerifyMessageResult
    command|recover_orphaned_transaction_command:RecoverOrphanedTransactionCommand
    command|print_thread_stack_trace_command:PrintThreadStackTraceCommand
    command|verify_message_command:VerifyMessageCommand
    command|reconnect_endpoints_command:ReconnectEndpointsCommand
    command|notify_unsubscribe_lite_command:NotifyUnsubscribeLiteCommand
NotifyClientTerminationRequest group?:Resource
NotifyClientTerminationResponse status:Status
ChangeInvisibleDurationRequest group:Resource topic:Resource receipt_handle invisible_duration:Span message_id
    lite_topic? suspend?:bool
ChangeInvisibleDurationResponse status:Status receipt_handle
PullMessageRequest group:Resource message_queue:MessageQueue offset:int64 batch_size:int32
    filter_expression:FilterExpression long_polling_timeout:Span
PullMessageResponse content|status:Status content|message:Message content|next_offset:int64
UpdateOffsetRequest group:Resource message_queue:MessageQueue offset:int64
UpdateOffsetResponse status:Status
GetOffsetRequest group:Resource message_queue:MessageQueue
GetOffsetResponse status:Status offset:int64
QueryOffsetRequest message_queue:MessageQueue query_offset_policy:QueryOffsetPolicy timestamp?:Time
QueryOffsetResponse status:Status offset:int64
RecallMessageRequest topic:Resource recall_handle
RecallMessageResponse status:Status message_id
SyncLiteSubscriptionRequest action:LiteSubscriptionAction topic:Resource group:Resource lite_topic_set* version?:int64
    offset_option?:OffsetOption
SyncLiteSubscriptionResponse status:Status
"""

# Enumerations nested in a message, and the names of their values, numbered from 0.
INNER_ENUMERATIONS = {"OffsetOption.Policy": ("LAST", "MIN", "MAX")}
