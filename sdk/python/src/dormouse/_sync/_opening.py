"""Nothing to do here for the blocking client: what a method returns is open already."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def opens(method: Callable[P, T]) -> Callable[P, T]:
    return method


def opens_stream(method: Callable[P, T]) -> Callable[P, T]:
    return method
