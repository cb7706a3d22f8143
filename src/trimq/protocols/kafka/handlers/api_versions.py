"""ApiVersions, versions 0 to 4: lists the APIs that this broker serves, with their versions.

An unknown version is answered in version 0 with the range of ApiVersions alone, and the connection stays open.
Three features are always finalized: group.version (broker-side assignment), transaction.version 2, and
metadata.version, by which tools recognise the version of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trimq.protocols.contract import Reply
from trimq.protocols.kafka.messages.handshakes import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.apis import API_VERSIONS, APIS
from trimq.protocols.kafka.wire.connection import Request, encode_response

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_PRODUCE = 0
# Least supported version and finalized version; metadata.version 30 is that of Kafka 4.3.
_FEATURES = {"group.version": (0, 1), "metadata.version": (7, 30), "transaction.version": (0, 2)}
_FINALIZED = [
    FinalizedFeatureKey(name=name, max_version_level=at, min_version_level=at) for name, (_, at) in _FEATURES.items()
]
_SUPPORTED = [
    SupportedFeatureKey(name=name, min_version=least, max_version=at) for name, (least, at) in _FEATURES.items()
]


def handle(request: Request, served: Iterable[int]) -> Reply:
    if not request.is_supported:
        own = [_range(API_VERSIONS)]
        response = ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=own)
        return Reply.now(encode_response(request, response, version=0))
    message = request.decode(ApiVersionsRequest)
    if request.api_version >= 3 and not (
        _SOFTWARE.fullmatch(message.client_software_name) and _SOFTWARE.fullmatch(message.client_software_version)
    ):
        return Reply.now(encode_response(request, ApiVersionsResponse(error_code=Code.INVALID_REQUEST)))
    ranges = [_range(key) for key in sorted(served)]
    # Clients of version 3 fail on a supported feature with a minimum of 0 (KAFKA-17011).
    supported = [feature for feature in _SUPPORTED if feature.min_version or request.api_version >= 4]
    response = ApiVersionsResponse(
        api_keys=ranges, supported_features=supported, finalized_features_epoch=0, finalized_features=_FINALIZED
    )
    return Reply.now(encode_response(request, response))


def _range(key: int) -> ApiVersion:
    api = APIS[key]
    # As in Apache Kafka: older librdkafka does not compress unless Produce is announced from version 0 (KAFKA-18659).
    least = 0 if key == _PRODUCE else api.min_version
    return ApiVersion(api_key=key, min_version=least, max_version=api.max_version)
