"""Messages about client quotas: DescribeClientQuotas, AlterClientQuotas. Schemas only, derived from the message
definitions of Apache Kafka 4.3.1 (see NOTICE)."""

from __future__ import annotations

from trimq.protocols.kafka.messages.schema import (
    RequestMessage,
    ResponseMessage,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ComponentData(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = nullable_string()


class DescribeClientQuotasRequest(RequestMessage, api_key=48):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = nullable_string()


class ValueData(Struct):
    key: str = string()
    value: float = float64()


class DescribeClientQuotasEntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(ResponseMessage, api_key=48):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entries: list[DescribeClientQuotasEntryData] | None = nullable_array(DescribeClientQuotasEntryData)


class OpData(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(RequestMessage, api_key=49):
    entries: list[AlterClientQuotasRequestEntryData] = array(AlterClientQuotasRequestEntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(ResponseMessage, api_key=49):
    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
