"""Errors of the client.

- `ApiError`: the daemon refused a request. Each code of the API has a subclass.
- `TransportError`: there was no response, or it broke off.
- `CommandError`: a command failed, and the caller wanted an error then.
- `SetupError`: a step of the setup of an environment failed.
- `PartialForkError`: some children of a fork could not be created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ._process import ExecResult
    from .types import AttemptFailure, Environment, SetupStepView


class DormouseError(Exception):
    """Base of all errors of this package."""


class ApiError(DormouseError):
    """The daemon refused a request, or could not carry it out."""

    code: str
    """The kind of the error, for programs: `not_found`, `conflict`, …"""
    message: str
    """The failure and its cause, for people."""
    next_step: str
    """The next thing to do, for people. It can be empty."""
    status: int
    """The HTTP status."""
    retry_after: float | None
    """Seconds after which another attempt may succeed, if the daemon says so."""
    request_id: str | None
    """The id of the request, if a proxy in front of the daemon gives it one."""

    def __init__(
        self,
        *,
        code: str,
        message: str,
        next_step: str = "",
        status: int = 0,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(f"{message} ({code}); {next_step}" if next_step else f"{message} ({code})")
        self.code = code
        self.message = message
        self.next_step = next_step
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id


class InvalidArgumentError(ApiError):
    """A parameter, a header or the body is invalid."""


class UnauthorizedError(ApiError):
    """The request has no valid API key."""


class ForbiddenError(ApiError):
    """The scope of the API key does not include this request."""


class NotFoundError(ApiError):
    """The object that the request names does not exist."""


class MethodNotAllowedError(ApiError):
    """The daemon does not know this operation; it is probably of another version."""


class ConflictError(ApiError):
    """The request does not fit the current state: a name is taken, or an object is in use."""


class GoneError(ApiError):
    """The sandbox is terminated, or the requested events were removed because of their age."""


class WrongHostError(ApiError):
    """The daemon does not serve the host name of the request."""


class FailedError(ApiError):
    """The operation was attempted and failed; nothing was lost."""


class DamagedError(ApiError):
    """A saved state or an image is damaged or missing."""


class UnreadableError(ApiError):
    """A record of the daemon cannot be read."""


class StoreFailedError(ApiError):
    """The database of the daemon failed; nothing was changed."""


class InternalError(ApiError):
    """A fault in Dormouse."""


class PortClosedError(ApiError):
    """No program listens on this port of the sandbox."""


class NoAnswerError(ApiError):
    """The program on this port closed the connection without a valid HTTP response."""


class UnavailableError(ApiError):
    """The daemon is stopping or full, or the sandbox does not respond at the moment."""


class TimedOutError(ApiError):
    """The operation took longer than it may."""


class NoRoomError(ApiError):
    """A limit is reached, such as the free disk or memory of the host, or a budget."""


ERRORS_BY_CODE: dict[str, type[ApiError]] = {
    "invalid_argument": InvalidArgumentError,
    "unauthorized": UnauthorizedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "method_not_allowed": MethodNotAllowedError,
    "conflict": ConflictError,
    "gone": GoneError,
    "wrong_host": WrongHostError,
    "failed": FailedError,
    "damaged": DamagedError,
    "unreadable": UnreadableError,
    "store_failed": StoreFailedError,
    "internal": InternalError,
    "port_closed": PortClosedError,
    "no_answer": NoAnswerError,
    "unavailable": UnavailableError,
    "timed_out": TimedOutError,
    "no_room": NoRoomError,
}
"""The class of each code of the API."""


class SetupError(ApiError):
    """A step of the setup of an environment failed."""

    environment: Environment
    """The environment, with the attempt that failed."""
    failure: AttemptFailure
    """The failure."""

    def __init__(self, error: ApiError, environment: Environment, failure: AttemptFailure) -> None:
        super().__init__(
            code=error.code,
            message=error.message,
            next_step=error.next_step,
            status=error.status,
            request_id=error.request_id,
        )
        self.environment = environment
        self.failure = failure

    @property
    def step(self) -> SetupStepView | None:
        """The step that failed."""
        steps = self.environment.attempt.steps if self.environment.attempt else []
        return steps[self.failure.step] if self.failure.step is not None else None

    @property
    def exit_code(self) -> int | None:
        """Exit code of its command, if that exited."""
        return self.failure.exit_code

    @property
    def kept(self) -> str | None:
        """ID of the sandbox that is kept for inspection, with `keep_failed`."""
        return self.failure.kept


class TransportError(DormouseError):
    """There was no complete response. The message has the address of the daemon."""

    was_sent: ClassVar[bool] = True
    """Whether the daemon may have received the request."""


class ConnectError(TransportError):
    """The daemon cannot be reached. It has not received the request."""

    was_sent = False


class ConnectionLostError(TransportError):
    """The connection broke before the response was complete."""


class ResponseTimeoutError(TransportError):
    """The daemon sent nothing for longer than the `timeout` of the client."""


class ProtocolError(TransportError):
    """The response is not one of a Dormouse daemon, or of another version of it."""


class CommandError(DormouseError):
    """A command ended with an exit code other than 0, by a signal, or at its time limit."""

    result: ExecResult
    """The result of the command."""

    def __init__(self, result: ExecResult) -> None:
        last_lines = "\n".join(result.stderr.splitlines()[-10:])
        super().__init__(f"the command {result.outcome}" + (f":\n{last_lines}" if last_lines else ""))
        self.result = result


class PartialForkError(DormouseError):
    """Some children of a fork could not be created. The others run."""

    children: Sequence[Any]
    """The children that were created."""
    errors: Sequence[ApiError]
    """Why the others were not."""

    def __init__(self, children: Sequence[Any], errors: Sequence[ApiError]) -> None:
        super().__init__(f"{len(errors)} of {len(children) + len(errors)} children failed: {errors[0]}")
        self.children = children
        self.errors = errors


def api_error(problem: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> ApiError:
    """Return the error that the body of a response, or the last event of a stream, describes."""
    headers = headers or {}
    retry_after = headers.get("retry-after", "")
    code = str(problem["code"])
    return ERRORS_BY_CODE.get(code, ApiError)(
        code=code,
        message=str(problem.get("detail") or problem.get("title") or code),
        next_step=str(problem.get("next_step") or ""),
        status=int(problem.get("status") or 0),
        retry_after=float(retry_after) if retry_after.isdigit() else None,
        request_id=headers.get("x-request-id"),
    )


def response_error(server: str, status: int, headers: Mapping[str, str], body: bytes) -> DormouseError:
    """Return the error of a response that is not a success."""
    try:
        return api_error({"status": status, **json.loads(body)}, headers)
    except (ValueError, KeyError, TypeError):
        return ProtocolError(f"{server} answered with status {status} but is not a Dormouse daemon")
