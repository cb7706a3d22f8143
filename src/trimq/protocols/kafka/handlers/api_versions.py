"""ApiVersions, versions 0 to 4: which APIs this broker serves, in which versions.

An unknown version is answered in version 0 with the range of this API alone, and the connection stays open.
Two features are finalized, for good: groups that the broker divides, and the second version of transactions.
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
_FEATURES = {"group.version": 1, "transaction.version": 2}
_FINALIZED = [
    FinalizedFeatureKey(name=name, max_version_level=at, min_version_level=at) for name, at in _FEATURES.items()
]
_SUPPORTED = [SupportedFeatureKey(name=name, min_version=0, max_version=at) for name, at in _FEATURES.items()]


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
    # Clients of version 3 take a feature that can be at 0 for an error (KAFKA-17011).
    supported = _SUPPORTED if request.api_version >= 4 else []
    response = ApiVersionsResponse(
        api_keys=ranges, supported_features=supported, finalized_features_epoch=0, finalized_features=_FINALIZED
    )
    return Reply.now(encode_response(request, response))


def _range(key: int) -> ApiVersion:
    api = APIS[key]
    # Older librdkafka sends batches uncompressed unless Produce is announced from 0 on (KAFKA-18659), as Kafka does.
    least = 0 if key == _PRODUCE else api.min_version
    return ApiVersion(api_key=key, min_version=least, max_version=api.max_version)
