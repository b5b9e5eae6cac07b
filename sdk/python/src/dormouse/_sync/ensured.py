# Generated from _async/ensured.py by scripts/generate_sync.py; do not edit.
"""The result of a request for an environment, and its stream of events."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _operations as ops
from .._environments import WaysConsidered
from .._request import Request
from .._sse import ServerSentEvent
from .._values import decode
from ..errors import ApiError, DormouseError, SetupError
from ..types import (
    Considered,
    EnsuredBy,
    EnsuredInfo,
    EnsurePhase,
    Environment,
    EnvironmentLease,
    EnvironmentLogLine,
    RestoredFrom,
    SetupStepView,
)
from ._transport import Transport
from .sandbox import Sandbox
from .stream import EventStream


class Ensured:
    """The sandbox of an environment, which runs, and how it was had."""

    info: EnsuredInfo
    """The response of the daemon."""
    sandbox: Sandbox
    """The sandbox. It is left as it is at the end of a `with`."""

    def __init__(self, transport: Transport, info: EnsuredInfo) -> None:
        self.info = info
        self.sandbox = Sandbox(transport, info.sandbox)

    @property
    def by(self) -> EnsuredBy:
        """The way on which it was had: `live`, `resumed`, `restored` or `created`."""
        return self.info.by

    @property
    def environment(self) -> Environment:
        """The environment."""
        return self.info.environment

    @property
    def considered(self) -> Sequence[Considered]:
        """The ways that were considered, in order, with the reasons against those not taken."""
        return self.info.considered

    @property
    def restored(self) -> RestoredFrom | None:
        """The snapshot that the sandbox was restored from."""
        return self.info.restored

    @property
    def lost(self) -> Sequence[str]:
        """Losses: everything that was there before and is not any more, as sentences."""
        return self.info.lost

    @property
    def drift(self) -> Sequence[str]:
        """Fields of the definition that are not as recorded, if the sandbox was kept even so."""
        return self.info.drift

    @property
    def phases(self) -> Sequence[EnsurePhase]:
        """The phases, with the time of each."""
        return self.info.phases

    @property
    def steps(self) -> Sequence[SetupStepView]:
        """The steps of the setup, if there was one."""
        return self.info.steps

    @property
    def snapshot_failure(self) -> str | None:
        """Why the snapshot after the setup could not be taken."""
        return self.info.snapshot_failure

    @property
    def joined(self) -> bool:
        """Whether an earlier request had begun to make the sandbox."""
        return self.info.joined

    @property
    def lease(self) -> EnvironmentLease | None:
        """The lease that the request has taken."""
        return self.info.lease

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.environment.id} {self.by} {self.sandbox!r}>"


EnsureEvent = WaysConsidered | Environment | EnvironmentLogLine | Ensured
"""An event of a request for an environment: the ways that are considered, the environment as the work
advances, a line of its log, and at the end the result."""


class EnsureStream(EventStream[EnsureEvent]):
    """The events of a request for an environment.

    If the connection is lost, the request is sent again. It joins the work in progress, whose log
    the daemon then sends from its beginning; lines that were delivered before are left out.
    """

    def __init__(self, transport: Transport, request: Request) -> None:
        resume = (lambda _: request) if request.is_repeatable else None
        super().__init__(transport, self._event, last=("ensured",), resume=resume)
        self._request = request
        self._environment: Environment | None = None
        self._next_line = 0

    def begin(self) -> EnsureStream:
        """Send the request."""
        self.open(self._request)
        return self

    def __next__(self) -> EnsureEvent:
        try:
            return super().__next__()
        except ApiError as error:
            explained = self._explained(error)
            if explained is None:
                raise
            raise explained from error

    def _event(self, event: ServerSentEvent) -> EnsureEvent | None:
        if event.kind == "considered":
            return WaysConsidered(decode(list[Considered], event.json()))
        if event.kind == "attempt":
            return self._advanced(decode(Environment, event.json()))
        if event.kind == "line":
            line = decode(EnvironmentLogLine, event.json())
            if line.offset < self._next_line:
                return None
            self._next_line = line.offset + 1
            return line
        if event.kind == "ensured":
            return Ensured(self._transport, decode(EnsuredInfo, event.json()))
        return None

    def _advanced(self, environment: Environment) -> Environment:
        if _attempt(self._environment) != _attempt(environment):
            self._next_line = 0
        self._environment = environment
        return environment

    def _explained(self, error: ApiError) -> SetupError | None:
        """Return the error of the step that has failed, if there is one."""
        if self._environment is None:
            return None
        try:
            request = ops.GET_ENVIRONMENT(self._environment.id)
            environment = self._transport.json(request, Environment)
        except DormouseError:
            return None
        if _attempt(environment) != _attempt(self._environment):
            return None
        failure = environment.attempt.failure if environment.attempt else None
        if failure is None or failure.step is None:
            return None
        return SetupError(error, environment, failure)


def _attempt(environment: Environment | None) -> str | None:
    """Return the id of the latest attempt."""
    return environment.attempt.id if environment and environment.attempt else None
