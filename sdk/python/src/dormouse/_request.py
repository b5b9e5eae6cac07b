"""Requests of the API before they are sent."""

from __future__ import annotations

import os
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from ._values import encode


@dataclass(frozen=True)
class Operation:
    """An operation of the API. Called with the parts of its path, it returns a request."""

    id: str
    method: str
    path: str
    accepts: tuple[str, ...] = ()
    """Headers that change how the operation is carried out."""

    def __call__(
        self,
        *segments: str | int,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        content: Any = None,
        headers: Mapping[str, str | None] | None = None,
        waits: bool = False,
        repeatable: bool = False,
    ) -> Request:
        """Return a request. Entries of `query`, `body` and `headers` that are None are left out."""
        names = [name for _, name, _, _ in string.Formatter().parse(self.path) if name]
        if any(str(segment) in ("", ".", "..") for segment in segments):
            raise ValueError(f"{self.id}: an id or a name is empty")
        parts = dict(zip(names, (quote(str(segment), safe="") for segment in segments), strict=True))
        return Request(
            operation=self,
            path=self.path.format(**parts),
            query={key: _parameter(value) for key, value in (query or {}).items() if value is not None},
            body=None if body is None else {k: encode(v) for k, v in body.items() if v is not None},
            content=content,
            headers={key: value for key, value in (headers or {}).items() if value is not None},
            waits=waits,
            repeatable=repeatable,
        )


@dataclass(frozen=True)
class Request:
    """A request of an operation."""

    operation: Operation
    path: str
    query: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    content: Any = None
    """The body, if it is not JSON: bytes, or something that yields them."""
    headers: dict[str, str] = field(default_factory=dict)
    waits: bool = False
    """Whether the response comes only when something has happened, however long that takes."""
    repeatable: bool = False
    """Whether carrying it out twice has the effect of carrying it out once."""

    def accepting(self, headers: Mapping[str, str]) -> Request:
        """Return the request with those of the headers that its operation accepts."""
        accepted = {key: value for key, value in headers.items() if key in self.operation.accepts}
        return self.with_headers({**accepted, **self.headers})

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        return replace(self, headers={**self.headers, **headers})

    def with_query(self, query: Mapping[str, Any]) -> Request:
        return replace(self, query={**self.query, **query})

    @property
    def has_repeatable_content(self) -> bool:
        """Whether the body can be sent more than once."""
        return isinstance(self.content, (bytes, str, type(None)))

    @property
    def is_repeatable(self) -> bool:
        """Whether the request can be sent again if it is not known whether it was carried out."""
        is_safe = self.repeatable or self.operation.method == "GET" or "Idempotency-Key" in self.headers
        return is_safe and self.has_repeatable_content


def _parameter(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, (list, tuple)):
        return [_parameter(item) for item in value]
    return encode(value)
