"""Waits for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_SECS = 60.0


def eventually(check: Callable[[], T], shown: Callable[[], Any] = lambda: "") -> T:
    """Return the first true result of a function, and fail if there is none in a minute."""
    deadline = time.monotonic() + DEADLINE_SECS
    while not (result := check()):
        assert time.monotonic() < deadline, f"this did not happen within the deadline: {shown()}"
        time.sleep(0.05)
    return result
