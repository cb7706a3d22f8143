"""DescribeUserScramCredentials and AlterUserScramCredentials, version 0: manage SCRAM credentials of users.

Clients send salted passwords; the broker stores only the keys that RFC 5802 derives from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trimq.core.security.scram_credentials import ScramCredential, derive_credential
from trimq.errors import AccessDenied, InvalidSetting, Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_Change = ScramCredentialDeletion | ScramCredentialUpsertion
_NUMBERS = {name: number for number, name in _MECHANISMS.items()}


def handle_describe(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeUserScramCredentialsRequest)
    try:
        known = context.broker.scram_credentials.all(context.caller)
    except AccessDenied as refusal:
        response = DescribeUserScramCredentialsResponse(error_code=_code_of(refusal), error_message=str(refusal))
        return Reply.now(encode_response(request, response))
    counts = Counter(user.name for user in message.users or ()) or Counter(list(known))
    results = [_describe(user, count, known) for user, count in counts.items()]
    return Reply.now(encode_response(request, DescribeUserScramCredentialsResponse(results=results)))


def _describe(
    user: str, count: int, known: Mapping[str, Sequence[ScramCredential]]
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=user)
    if count > 1:
        result.error_code, result.error_message = Code.DUPLICATE_RESOURCE, "the user is listed more than once"
    elif user not in known:
        result.error_code, result.error_message = Code.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=_NUMBERS[credential.mechanism], iterations=credential.iterations)
            for credential in known[user]
        ]
    return result


def handle_alter(context: Context, request: Request) -> Reply:
    message = request.decode(AlterUserScramCredentialsRequest)
    asked: list[_Change] = [*message.deletions, *message.upsertions]
    tickets = ChangeTickets()
    results = []
    for user, changes in _by_user(asked).items():
        result = AlterUserScramCredentialsResult(user=user, error_message=None)
        try:
            _check(context, changes[0])
            if len(changes) > 1:
                raise KafkaRefusal(Code.DUPLICATE_RESOURCE, "the user is listed more than once in the request")
            _alter(context, changes[0], tickets)
        except Refusal as refusal:
            result.error_code, result.error_message = _code_of(refusal), str(refusal)
        results.append(result)

    def answer() -> Parts:
        for result in results:
            refusal = tickets.refusal(result.user)
            if refusal is not None:
                result.error_code, result.error_message = code_of(refusal), str(refusal)
        return encode_response(request, AlterUserScramCredentialsResponse(results=results))

    return Reply.when_durable(tickets.number, answer)


def _by_user(asked: Iterable[_Change]) -> dict[str, list[_Change]]:
    found: dict[str, list[_Change]] = {}
    for each in asked:
        found.setdefault(each.name, []).append(each)
    return found


def _mechanism(asked: _Change) -> str:
    mechanism = _MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        raise KafkaRefusal(Code.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism {asked.mechanism}")
    return mechanism


def _check(context: Context, asked: _Change) -> None:
    """Raises the refusal of the first change of a user, which precedes that of a user who is listed twice."""
    if not asked.name:
        raise KafkaRefusal(Code.UNACCEPTABLE_CREDENTIAL, "the name of the user is empty")
    mechanism = _mechanism(asked)
    if isinstance(asked, ScramCredentialDeletion):
        known = context.broker.scram_credentials.all(context.caller).get(asked.name, ())
        if not any(each.mechanism == mechanism for each in known):
            raise KafkaRefusal(Code.RESOURCE_NOT_FOUND, f"user {asked.name[:40]!r} has no credential for {mechanism}")
    else:
        derive_credential(asked.name, mechanism, asked.iterations, asked.salt, asked.salted_password)


def _alter(context: Context, asked: _Change, tickets: ChangeTickets) -> None:
    mechanism = _mechanism(asked)
    if isinstance(asked, ScramCredentialDeletion):
        ticket = context.broker.scram_credentials.delete(context.caller, asked.name, mechanism)
    else:
        derived = derive_credential(asked.name, mechanism, asked.iterations, asked.salt, asked.salted_password)
        ticket = context.broker.scram_credentials.put(context.caller, derived)
    tickets.add(asked.name, ticket)


def _code_of(refusal: Refusal) -> Code:
    if isinstance(refusal, InvalidSetting):
        return Code.UNACCEPTABLE_CREDENTIAL
    if isinstance(refusal, AccessDenied):
        return Code.CLUSTER_AUTHORIZATION_FAILED
    return code_of(refusal)


HANDLERS = {"DescribeUserScramCredentials": handle_describe, "AlterUserScramCredentials": handle_alter}
