"""Messages that open a connection: ApiVersions, SaslHandshake, SaslAuthenticate. Schemas only, derived from the message
definitions of Apache Kafka 4.3.1 (see NOTICE)."""

from __future__ import annotations

from trimq.protocols.kafka.messages.schema import (
    RequestMessage,
    ResponseMessage,
    Struct,
    array,
    blob,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    string,
)


class ApiVersionsRequest(RequestMessage, api_key=18):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(ResponseMessage, api_key=18):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


class SaslHandshakeRequest(RequestMessage, api_key=17):
    mechanism: str = string()


class SaslHandshakeResponse(ResponseMessage, api_key=17):
    error_code: int = int16()
    mechanisms: list[str] = array(string)


class SaslAuthenticateRequest(RequestMessage, api_key=36):
    auth_bytes: bytes = blob()


class SaslAuthenticateResponse(ResponseMessage, api_key=36):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64("1+")
