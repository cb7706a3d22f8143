from __future__ import annotations

import pytest

from trimq.protocols.kafka.messages.schema import RequestMessage, ResponseMessage
from trimq.protocols.kafka.wire.apis import APIS, ROWS, UnsupportedRequest, request_class, response_class


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
def test_every_api_has_a_request_and_a_response_of_its_own_key(key: int) -> None:
    request, response = request_class(key), response_class(key)
    assert issubclass(request, RequestMessage)
    assert issubclass(response, ResponseMessage)
    assert (key, key) == (request.API_KEY, response.API_KEY)


def test_keys_and_names_are_unique() -> None:
    assert len(APIS) == len(ROWS) == len({api.name for api in ROWS})


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("Produce", 3, 13),
        ("Fetch", 4, 18),
        ("Metadata", 0, 13),
        ("JoinGroup", 0, 9),
        ("InitProducerId", 0, 5),
        ("AddPartitionsToTxn", 0, 3),
        ("ApiVersions", 0, 4),
    ],
)
def test_the_versions_are_those_that_are_to_be_served(name: str, first: int, last: int) -> None:
    (api,) = (api for api in ROWS if api.name == name)
    assert (api.min_version, api.max_version) == (first, last)


def test_a_refusal_names_the_api_and_the_versions_that_would_do() -> None:
    assert str(UnsupportedRequest(1, 3)) == "Fetch version 3 is not served, only 4 to 18"
    assert str(UnsupportedRequest(999, 0)) == "API key 999 is unknown"
