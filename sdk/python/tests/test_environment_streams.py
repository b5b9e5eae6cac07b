"""The stream of a request for an environment across lost connections, with both clients."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Connect
from fake_server import FakeServer, answer, drop, event, problem, stream
from test_retries import SANDBOX

from dormouse import SetupError
from dormouse.errors import FailedError
from dormouse.types import EnvironmentLifecycle, EnvironmentLogLine, GitSource

STEP = {"title": "make", "state": "failed", "exit_code": 2}


def environment(attempt: str = "att1", failure: dict[str, Any] | None = None) -> dict[str, Any]:
    began = "2026-11-26T23:06:17.307Z"
    return {
        "id": "env1",
        "project": "local",
        "key": "web",
        "state": "working",
        "workspace": "a" * 64,
        "lifecycle": {},
        "leases": [],
        "retired": [],
        "created_at": began,
        "attempt": {
            "id": attempt,
            "state": "running" if failure is None else "failed",
            "considered": [],
            "steps": [STEP],
            "phases": [],
            "failure": failure,
            "began_at": began,
        },
    }


def attempt(attempt: str = "att1") -> bytes:
    return event("attempt", environment(attempt))


def line(offset: int, text: str) -> bytes:
    data = {"offset": offset, "at": "2026-11-26T23:06:17.307Z", "stream": "stdout", "text": text}
    return event("line", data, str(offset))


CONSIDERED = event("considered", [{"way": "create", "verdict": "taken"}])
ENSURED = event(
    "ensured",
    {
        "environment": environment(),
        "sandbox": SANDBOX,
        "by": "created",
        "considered": [],
        "lost": [],
        "drift": [],
        "phases": [],
        "steps": [],
        "joined": True,
    },
)
ERROR = event("error", {"code": "failed", "status": 500, "detail": "step 1 (make): code 2", "next_step": ""})


def texts(events: list[Any]) -> list[str]:
    return [event.text for event in events if isinstance(event, EnvironmentLogLine)]


def test_a_lost_connection_joins_the_work_and_repeats_no_line(connect: Connect) -> None:
    with FakeServer() as server:
        server.then(
            stream(CONSIDERED, attempt(), line(0, "a"), line(1, "b"), broken=True),
            drop,
            stream(event("error", {"code": "unavailable", "status": 503, "detail": "stopping"})),
            stream(CONSIDERED, attempt(), line(0, "a"), line(1, "b"), line(2, "c"), ENSURED),
        )
        events: list[Any] = []
        client = connect(server.url)
        ensured = client.environments.ensure(key="web", image="base", on_event=events.append)
    assert (ensured.by, ensured.joined, ensured.sandbox.id) == ("created", True, SANDBOX["id"])
    assert texts(events) == ["a", "b", "c"]
    assert [request.json() for request in server.requests] == [{"key": "web", "image": "base"}] * 4


def test_the_log_of_another_attempt_begins_again(connect: Connect) -> None:
    with FakeServer() as server:
        server.then(
            stream(attempt("att1"), line(0, "a"), line(1, "b"), broken=True),
            stream(attempt("att2"), line(0, "a"), line(1, "b"), ENSURED),
        )
        events: list[Any] = list(connect(server.url).environments.ensure_events(key="web", image="base"))
    assert texts(events) == ["a", "b", "a", "b"]


def test_a_request_that_was_not_answered_is_sent_again(connect: Connect) -> None:
    with FakeServer() as server:
        server.then(drop, problem(503, "unavailable"), stream(ENSURED))
        assert connect(server.url).environments.ensure(key="web", image="base").by == "created"


def test_a_request_for_one_use_is_repeated_with_its_idempotency_key(connect: Connect) -> None:
    once = EnvironmentLifecycle(reuse="none")
    for step in (drop, stream(CONSIDERED, broken=True)):
        with FakeServer() as server:
            server.then(step, stream(ENSURED))
            assert connect(server.url).environments.ensure(image="base", lifecycle=once).by == "created"
            assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


def test_a_failed_step_is_read_from_the_environment(connect: Connect) -> None:
    failure = {"code": "failed", "reason": "code 2", "step": 0, "exit_code": 2, "kept": "sbx9"}
    with FakeServer() as server:
        server.then(stream(attempt(), ERROR), answer(200, environment(failure=failure)))
        with pytest.raises(SetupError) as caught:
            connect(server.url).environments.ensure(key="web", image="base")
    assert (caught.value.exit_code, caught.value.kept, caught.value.message) == (
        2,
        "sbx9",
        "step 1 (make): code 2",
    )
    assert caught.value.step is not None
    assert caught.value.step.title == "make"


@pytest.mark.parametrize("other", ["another attempt", "no step", "removed"])
def test_an_error_that_no_step_explains_stays_as_it_is(connect: Connect, other: str) -> None:
    failure = {"code": "failed", "reason": "code 2", "step": None if other == "no step" else 0}
    found = environment("att2" if other == "another attempt" else "att1", failure)
    with FakeServer() as server:
        step = problem(404, "not_found") if other == "removed" else answer(200, found)
        server.then(stream(attempt(), ERROR), step)
        with pytest.raises(FailedError, match="make"):
            connect(server.url).environments.ensure(key="web", image="base")


def test_a_lease_is_renewed_again_after_a_lost_connection(connect: Connect) -> None:
    lease = {"id": "lse1", "expires_at": "2026-11-26T23:06:17.307Z"}
    with FakeServer() as server:
        server.then(drop, answer(200, lease))
        renewed = connect(server.url).environments.renew_lease("web", "lse1", 60)
        assert renewed.id == "lse1"
        assert [request.json() for request in server.requests] == [{"lease_secs": 60}] * 2


def test_a_token_is_not_shown() -> None:
    assert "hidden" not in repr(GitSource(url="https://example.com/a.git", token="hidden"))
