"""DescribeClientQuotas and AlterClientQuotas, versions 0 and 1: byte rates, and rates of created and deleted
partitions, of users and client ids. Changes are answered when all of them are durable.

Not served: quotas of IP addresses, request time and connection rate (refused).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from trimq.core.security.quotas import Metered, Quota, QuotaEntity, QuotaEntityName
from trimq.errors import InvalidSetting, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    ComponentData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
    ValueData,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_USER, _CLIENT, _ADDRESS = "user", "client-id", "ip"
_RATES = {
    "producer_byte_rate": Metered.IN,
    "consumer_byte_rate": Metered.OUT,
    "controller_mutation_rate": Metered.MUTATIONS,
}
_KEYS = {metered.value: key for key, metered in _RATES.items()}
_NOT_SERVED = ("request_percentage", "connection_creation_rate")
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_MOST = 2.0**63
_ROUNDING = 1e-6

_Names = Mapping[str, str | None]


# -- describe


def handle_describe(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeClientQuotasRequest)
    try:
        wanted = _read_components(message.components)
        entries = [
            _entry(holder, quota)
            for holder, quota in context.broker.quotas.all(context.caller).items()
            if _matches(_names(holder), wanted, message.strict)
        ]
        response = DescribeClientQuotasResponse(error_message="", entries=entries)
    except Refusal as refusal:
        code = _code_of(refusal)
        response = DescribeClientQuotasResponse(error_code=code, error_message=str(refusal), entries=None)
    return Reply.now(encode_response(request, response))


def _read_components(components: list[ComponentData]) -> dict[str, ComponentData]:
    wanted: dict[str, ComponentData] = {}
    for component in components:
        kind = component.entity_type
        if kind not in (_USER, _CLIENT, _ADDRESS):
            raise KafkaRefusal(Code.UNSUPPORTED_VERSION, f"{kind[:40]!r} is not a quota entity type")
        if kind in wanted:
            raise KafkaRefusal(Code.INVALID_REQUEST, f"{kind} is listed twice")
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise KafkaRefusal(Code.INVALID_REQUEST, f"unknown match type {component.match_type}")
        if (component.match_type == _EXACT) != (component.match is not None):
            raise KafkaRefusal(Code.INVALID_REQUEST, "a name is required for an exact match, and not allowed otherwise")
        wanted[kind] = component
    if _ADDRESS in wanted and len(wanted) > 1:
        raise KafkaRefusal(Code.INVALID_REQUEST, "ip cannot be combined with user or client-id")
    return wanted


def _matches(names: _Names, wanted: Mapping[str, ComponentData], strict: bool) -> bool:
    if strict and names.keys() != wanted.keys():
        return False
    return all(kind in names and _is_match(names[kind], component) for kind, component in wanted.items())


def _is_match(name: str | None, component: ComponentData) -> bool:
    if component.match_type == _SPECIFIED:
        return True
    return name == component.match  # both are None for a default quota


def _names(holder: QuotaEntity) -> dict[str, str | None]:
    parts = {_USER: holder.principal, _CLIENT: holder.client}
    return {kind: part.name for kind, part in parts.items() if part is not None}


def _entry(holder: QuotaEntity, quota: Quota) -> DescribeClientQuotasEntryData:
    entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in _names(holder).items()]
    values = [ValueData(key=_KEYS[metered], value=float(rate)) for metered, rate in quota.rates.items()]
    return DescribeClientQuotasEntryData(entity=entity, values=values)


# -- alter


def handle_alter(context: Context, request: Request) -> Reply:
    message = request.decode(AlterClientQuotasRequest)
    tickets = ChangeTickets()
    counts = Counter(_key(entry) for entry in message.entries)
    results = []
    # Each entity once: one that is listed twice is refused, and answered, once.
    first: dict[frozenset[tuple[str, str | None]], AlterClientQuotasRequestEntryData] = {}
    for entry in message.entries:
        first.setdefault(_key(entry), entry)
    for number, entry in enumerate(first.values()):
        entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in _parts(entry).items()]
        result = AlterClientQuotasResponseEntryData(error_message=None, entity=entity)
        try:
            _alter(context, entry, message.validate_only, number, tickets)
            if counts[_key(entry)] > 1:  # as in Kafka, the first entry has its effect all the same
                raise KafkaRefusal(Code.INVALID_REQUEST, "the entity is listed more than once in the request")
        except Refusal as refusal:
            result.error_code, result.error_message = _code_of(refusal), str(refusal)
        results.append(result)

    def answer() -> Parts:
        for number, result in enumerate(results):
            refusal = tickets.refusal(number)
            if refusal is not None:
                result.error_code, result.error_message = code_of(refusal), str(refusal)
        return encode_response(request, AlterClientQuotasResponse(entries=results))

    return Reply.when_durable(tickets.number, answer)


def _parts(entry: AlterClientQuotasRequestEntryData) -> dict[str, str | None]:
    """Names of the entity by their types. As in Kafka, the last of two names for the same type counts."""
    return {part.entity_type: part.entity_name for part in entry.entity}


def _key(entry: AlterClientQuotasRequestEntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset(_parts(entry).items())


def _alter(
    context: Context, entry: AlterClientQuotasRequestEntryData, validate_only: bool, number: int, tickets: ChangeTickets
) -> None:
    holder = _read_holder(_parts(entry))
    before = context.broker.quotas.all(context.caller).get(holder, Quota())
    rates = {Metered(word): rate for word, rate in before.rates.items()}
    if len({operation.key for operation in entry.ops}) < len(entry.ops):
        raise KafkaRefusal(Code.INVALID_REQUEST, "a quota is listed more than once for the entity")
    for operation in entry.ops:
        if not operation.remove:
            rates[_read_key(operation.key)] = _read_rate(operation)
        elif operation.key in _RATES:  # nothing is set under other keys
            rates.pop(_RATES[operation.key], None)
    if validate_only:
        context.broker.quotas.check(context.caller, holder, rates)
        return
    ticket = context.broker.quotas.define(context.caller, holder, rates)
    if ticket is not None:
        tickets.add(number, ticket)


def _read_holder(entity: Mapping[str, str | None]) -> QuotaEntity:
    names: dict[str, QuotaEntityName] = {}
    for kind, name in entity.items():
        if kind == _ADDRESS:
            raise KafkaRefusal(Code.INVALID_REQUEST, "quotas of IP addresses are not supported")
        if kind not in (_USER, _CLIENT):
            raise KafkaRefusal(Code.INVALID_REQUEST, f"{kind[:40]!r} is not a quota entity type")
        if name == "":
            raise KafkaRefusal(Code.INVALID_REQUEST, f"the name of the {kind} is empty")
        names[kind] = QuotaEntityName(name)
    return QuotaEntity(names.get(_USER), names.get(_CLIENT))


def _read_key(key: str) -> Metered:
    metered = _RATES.get(key)
    if metered is not None:
        return metered
    reason = "is not supported" if key in _NOT_SERVED else "is not a quota"
    raise KafkaRefusal(Code.INVALID_REQUEST, f"{key[:40]} {reason}; use {' or '.join(_RATES)} instead")


def _read_rate(operation: OpData) -> float:
    if operation.key == "controller_mutation_rate":
        if not 0 < operation.value < math.inf:
            raise KafkaRefusal(Code.INVALID_REQUEST, f"{operation.key}: {operation.value} is not a positive number")
        return operation.value
    if not (0 < operation.value <= _MOST and operation.value % 1 <= _ROUNDING):
        raise KafkaRefusal(Code.INVALID_REQUEST, f"{operation.key}: {operation.value} is not a positive integer")
    return int(operation.value)


def _code_of(refusal: Refusal) -> Code:
    if isinstance(refusal, InvalidSetting):
        return Code.INVALID_REQUEST
    return code_of(refusal)


HANDLERS = {"DescribeClientQuotas": handle_describe, "AlterClientQuotas": handle_alter}
