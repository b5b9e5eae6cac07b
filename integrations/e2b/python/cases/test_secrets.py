"""Secrets and identities, which belong to E2B's cloud: the server refuses them by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from e2b import SandboxException, SecretException, SecretNotFoundException

from support.surface import Surface

REFUSALS = (SecretException, SecretNotFoundException, SandboxException)

CALLS: dict[str, Callable[[Any], Any]] = {
    "create": lambda secret: secret.create("name", "value", metadata={"a": "b"}),
    "get_info": lambda secret: secret.get_info("name"),
    "update": lambda secret: secret.update("name", "value", metadata={"a": "b"}),
    "list": lambda secret: secret.list(limit=1, next_token="x").next_items(),
}


@pytest.mark.parametrize("call", CALLS)
def test_secrets_are_refused_by_name(api: Surface, call: str) -> None:
    with pytest.raises(REFUSALS, match=r"secrets|not found"):
        CALLS[call](api.Secret)


def test_the_existence_of_a_secret_is_denied_or_refused(api: Surface) -> None:
    try:
        assert api.Secret.exists("name") is False
    except REFUSALS as error:
        assert "secrets" in str(error)


def test_the_end_of_a_secret_is_denied_or_refused(api: Surface) -> None:
    try:
        assert api.Secret.destroy("name") is False
    except REFUSALS as error:
        assert "secrets" in str(error)


def test_placeholders_are_made_without_a_server(api: Surface) -> None:
    assert "name" in api.Secret.fill("name")
    token = api.Secret.iam_token(audience="example", token_type="JWT-SVID")
    assert token == {"audience": "example", "token_type": "JWT-SVID"}


def test_pages_of_secrets_begin_with_the_first(api: Surface) -> None:
    paginator = api.Secret.list()
    assert (paginator.has_next, paginator.next_token) == (True, None)
