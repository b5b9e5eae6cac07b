"""The part that all programs share: an example is a function that checks the promises of its page."""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import httpx

EXAMPLES: list[tuple[str, Callable[[], None]]] = []
KILLED: list[object] = []

T = TypeVar("T")


def example(title: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Name an example of the page."""

    def add(function: Callable[[], None]) -> Callable[[], None]:
        EXAMPLES.append((title, function))
        return function

    return add


def until(check: Callable[[], T]) -> T:
    """Wait for a true result, for at most a minute."""
    deadline = time.monotonic() + 60
    while not (result := check()):
        if time.monotonic() > deadline:
            raise TimeoutError("this did not happen within a minute")
        time.sleep(0.1)
    return result


def visit(host: str, path: str = "/", **headers: str) -> httpx.Response:
    """Open `https://HOST`, also where names that end in localhost are not known."""
    address = httpx.URL(os.environ["E2B_API_URL"]).copy_with(scheme="https", path=path)
    with httpx.Client(verify=ssl.create_default_context(cafile=os.environ["E2B_CASES_CA"]), timeout=60) as client:
        name = host.rsplit(":", 1)[0]
        return client.get(address, headers={"Host": host, **headers}, extensions={"sni_hostname": name})


def main() -> None:
    """Run all examples, and print the result of each as a line of JSON."""
    failed = False
    for title, function in EXAMPLES:
        try:
            function()
            result = "as promised"
        except BaseException as error:
            failed = True
            result = f"{type(error).__name__}: {error}"
            traceback.print_exc()
        print(json.dumps({"example": title, "result": result}), flush=True)
    sys.exit(1 if failed else 0)
