"""Environments: sandboxes that are asked for by a key."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _operations as ops
from .._directory import pack
from .._environments import EnsureParameters, WaysConsidered, ensure_body
from .._http import LOST
from .._values import Duration, seconds
from ..errors import DormouseError, NotFoundError
from ..types import (
    EnsureExplanation,
    Environment,
    EnvironmentLease,
    EnvironmentLog,
    EnvironmentLogLine,
    EnvironmentSource,
    EnvironmentThread,
    GitSource,
    RunOutcome,
)
from . import _io
from ._opening import opens, opens_stream
from .artifacts import AsyncBuilds
from .ensured import AsyncEnsured, AsyncEnsureEvent, AsyncEnsureStream
from .resources import AsyncResource
from .sandbox import AsyncSandbox
from .stream import AsyncStream

if TYPE_CHECKING:
    from typing_extensions import Unpack

OnEvent = Callable[[WaysConsidered | Environment | EnvironmentLogLine], Any]
"""A function that is called with the progress of a request for an environment."""

LEASE_SECS = 60.0

RENEWALS_PER_LEASE = 3
"""A lease outlasts two renewals that fail."""


class AsyncEnvironments(AsyncResource):
    """Environments: sandboxes that are asked for by a key, whatever state they are in."""

    async def ensure(
        self,
        key: str | None = None,
        *,
        thread: EnvironmentThread | None = None,
        lease: Duration | None = None,
        on_event: OnEvent | None = None,
        **parameters: Unpack[EnsureParameters],
    ) -> AsyncEnsured:
        """Return the sandbox of an environment: running, resumed, restored, or created and set up.

        For one key there is only ever one sandbox, and for one definition only one setup at a time,
        however many callers ask. After a lost connection, such as while the daemon restarts, the
        request is sent again and joins the work in progress.

        Args:
            key: The key of the environment, unique in the project. With `lifecycle.reuse` of `none`, the
                environment needs neither a key nor a thread.
            thread: The thread of an agent, in place of a key. All of its fields are compared.
            lease: Take a lease for this time, at most 24 hours. `run` does so, and renews it.
            on_event: Called with the progress.
            **parameters: What the sandbox has; see `EnsureParameters`.

        Raises:
            SetupError: A step of the setup failed.
        """
        async with await self._begin(key, thread, parameters, lease) as events:
            while not isinstance(event := await anext(events), AsyncEnsured):
                if on_event is not None:
                    on_event(event)
            return event

    @opens_stream
    async def ensure_events(
        self,
        key: str | None = None,
        *,
        thread: EnvironmentThread | None = None,
        lease: Duration | None = None,
        **parameters: Unpack[EnsureParameters],
    ) -> AsyncStream[AsyncEnsureEvent]:
        """Like `ensure`, as a stream of events. The last one is the result.

        Args:
            key: The key of the environment, unique in the project.
            thread: The thread of an agent, in place of a key.
            lease: Take a lease for this time, at most 24 hours.
            **parameters: What the sandbox has; see `EnsureParameters`.

        Raises:
            SetupError: A step of the setup failed.
        """
        return await self._begin(key, thread, parameters, lease)

    @opens
    async def run(
        self,
        key: str | None = None,
        *,
        thread: EnvironmentThread | None = None,
        lease: Duration = LEASE_SECS,
        on_event: OnEvent | None = None,
        **parameters: Unpack[EnsureParameters],
    ) -> AsyncEnvironmentRun:
        """Use an environment for the length of a `with`, under a lease that is renewed meanwhile.

        At the end, the lease is released with the outcome `completed`, or `failed` if the block is
        left by an exception. `lifecycle` says what follows.

        Args:
            key: The key of the environment, unique in the project.
            thread: The thread of an agent, in place of a key.
            lease: How long the lease lasts if this program dies, at most 24 hours.
            on_event: Called with the progress.
            **parameters: What the sandbox has; see `EnsureParameters`.

        Raises:
            SetupError: A step of the setup failed.
        """
        ensured = await self.ensure(key, thread=thread, lease=lease, on_event=on_event, **parameters)
        return AsyncEnvironmentRun(self, ensured, seconds(lease) or LEASE_SECS)

    async def explain(
        self,
        key: str | None = None,
        *,
        thread: EnvironmentThread | None = None,
        **parameters: Unpack[EnsureParameters],
    ) -> EnsureExplanation:
        """Return what `ensure` would do, and why. It changes nothing, except that a missing image is pulled.

        Args:
            key: The key of the environment, unique in the project.
            thread: The thread of an agent, in place of a key.
            **parameters: What the sandbox has; see `EnsureParameters`.
        """
        source = await self._source(parameters, upload=False)
        body = ensure_body(key, thread, parameters, source=source)
        return await self._transport.json(ops.EXPLAIN_ENSURE(body=body, repeatable=True), EnsureExplanation)

    async def get(self, environment: str) -> Environment:
        """Return an environment by its id or key."""
        return await self._transport.json(ops.GET_ENVIRONMENT(environment), Environment)

    def list(self, *, limit: int | None = None) -> AsyncIterator[Environment]:
        """Yield all environments, the oldest first. `limit` is the number in one response."""
        request = ops.LIST_ENVIRONMENTS(query={"limit": limit})
        return self._transport.pages(request, "environments", Environment)

    async def logs(
        self,
        environment: str,
        *,
        offset: int | None = None,
        lines: int | None = None,
        wait: Duration | None = None,
    ) -> EnvironmentLog:
        """Return lines of the log of the latest attempt to make the sandbox.

        Args:
            environment: ID or key of the environment.
            offset: The first line, such as `next_offset` of the previous result. Default: 0.
            lines: Number of lines, 1,000 at most.
            wait: How long to wait for a line, at most 600 seconds. Default: not at all.
        """
        query = {"offset": offset, "lines": lines, "wait_secs": seconds(wait)}
        request = ops.GET_ENVIRONMENT_LOG(environment, query=query, waits=wait is not None)
        return await self._transport.json(request, EnvironmentLog)

    async def cancel(self, environment: str) -> Environment:
        """Cancel making the sandbox. Every caller that waits for it gets an error."""
        return await self._transport.json(ops.CANCEL_ENVIRONMENT(environment, waits=True), Environment)

    async def renew_lease(self, environment: str, lease: str, duration: Duration) -> EnvironmentLease:
        """Renew a lease.

        Args:
            environment: ID or key of the environment.
            lease: ID of the lease.
            duration: How long it lasts from now, at most 24 hours.
        """
        body = {"lease_secs": seconds(duration)}
        request = ops.RENEW_ENVIRONMENT_LEASE(environment, lease, body=body, repeatable=True)
        return await self._transport.json(request, EnvironmentLease)

    async def release(
        self, environment: str, *, lease: str | None = None, outcome: RunOutcome | None = None
    ) -> Environment:
        """End a run, and wait until what follows is done: a snapshot, or the end of the sandbox.

        Releasing a lease that does not exist succeeds.

        Args:
            environment: ID or key of the environment.
            lease: ID of the lease of the run. Default: the run had none.
            outcome: `completed`, the default, or `failed`: then no snapshot is taken.
        """
        body = {"lease": lease, "outcome": outcome}
        request = ops.RELEASE_ENVIRONMENT(environment, body=body, waits=True, repeatable=lease is not None)
        return await self._transport.json(request, Environment)

    async def remove(self, environment: str) -> None:
        """Remove an environment with its sandboxes, and with its snapshots unless others use them."""
        await self._transport.send(ops.REMOVE_ENVIRONMENT(environment, waits=True))

    async def _begin(
        self,
        key: str | None,
        thread: EnvironmentThread | None,
        parameters: EnsureParameters,
        lease: Duration | None,
    ) -> AsyncEnsureStream:
        source = await self._source(parameters, upload=True)
        body = ensure_body(key, thread, parameters, source=source, lease=lease)
        # Every attempt has the same idempotency key.
        request = self._transport.prepared(ops.ENSURE_ENVIRONMENT(body=body))
        return await AsyncEnsureStream(self._transport, request).begin()

    async def _source(self, parameters: EnsureParameters, *, upload: bool) -> EnvironmentSource | None:
        source = parameters.get("source")
        if isinstance(source, (str, os.PathLike)):
            return EnvironmentSource(context=await self._context(source, upload=upload))
        return EnvironmentSource(git=source) if isinstance(source, GitSource) else source

    async def _context(self, directory: str | os.PathLike[str], *, upload: bool) -> str:
        """Return the hash of a local directory, whose files the daemon then has if they are needed."""
        builds = AsyncBuilds(self._transport)
        with tempfile.TemporaryFile() as archive:
            hash = await _io.in_thread(pack, directory, archive)
            if upload:
                try:
                    await builds.context(hash)
                except NotFoundError:
                    await builds.upload_context(hash, archive)
        return hash


class AsyncEnvironmentRun:
    """The use of an environment under a lease, which is renewed until the end of the `with`."""

    ensured: AsyncEnsured
    """The sandbox, and how it was had."""
    renewal_error: DormouseError | None
    """Why the lease was lost. At the end of the `with`, it is raised."""

    def __init__(self, environments: AsyncEnvironments, ensured: AsyncEnsured, lease_secs: float) -> None:
        self.ensured = ensured
        self.renewal_error = None
        self._environments = environments
        self._environment = ensured.environment.id
        self._lease = ensured.lease.id if ensured.lease else ""
        self._lease_secs = lease_secs

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox of the environment."""
        return self.ensured.sandbox

    async def __aenter__(self) -> AsyncEnvironmentRun:
        self._renewals = _io.Repeated(self._renew, self._lease_secs / RENEWALS_PER_LEASE)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._renewals.stop()
        outcome: RunOutcome = "completed" if error is None else "failed"
        try:
            await self._environments.release(self._environment, lease=self._lease, outcome=outcome)
        except DormouseError:
            # The error that leaves the block says more, and the lease expires anyway.
            if error is None:
                raise
        if error is None and self.renewal_error is not None:
            raise self.renewal_error

    async def _renew(self) -> None:
        try:
            await self._environments.renew_lease(self._environment, self._lease, self._lease_secs)
        except LOST:
            # The next renewal may still come in time.
            return
        except DormouseError as error:
            self.renewal_error = error
