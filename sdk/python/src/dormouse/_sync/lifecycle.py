# Generated from _async/lifecycle.py by scripts/generate_sync.py; do not edit.
"""Suspends, resumes and ends a sandbox, and limits the time it runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from .. import _operations as ops
from .._values import Duration, seconds
from ..types import Event, Hold, IfBusy, Kept, SandboxInfo, Usage, UsageHistory, Why
from ._opening import opens_stream
from .events import follow_events, list_events
from .handle import Handle
from .stream import Stream

H = TypeVar("H", bound="Lifecycle")


class Lifecycle(Handle):
    """The states of a sandbox."""

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.on_exit == "terminate":
            self.terminate()
        elif self.on_exit == "suspend":
            self.suspend()

    def refresh(self) -> SandboxInfo:
        """Ask for the properties of the sandbox. This works in every state."""
        return self._changed(ops.GET_SANDBOX(self.id))

    def suspend(
        self, *, keep: Kept | None = None, if_busy: IfBusy | None = None, wait: bool | None = None
    ) -> SandboxInfo:
        """Suspend the sandbox. When this returns, its state is on disk and verified.

        A suspended sandbox stays as it is. An ephemeral sandbox can only keep its files.

        Args:
            keep: `memory`, the default, keeps memory, processes and files; `files` only files.
            if_busy: `wait`, the default, for another operation on the sandbox, or `refuse`.
            wait: False to return as soon as the operation has begun; `info.operation` names it.
        """
        body = {"keep": keep, "if_busy": if_busy, "wait": wait}
        return self._changed(ops.SUSPEND_SANDBOX(self.id, body=body))

    def resume(
        self,
        *,
        timeout: Duration | None = None,
        max_wait: Duration | None = None,
        if_busy: IfBusy | None = None,
        wait: bool | None = None,
    ) -> SandboxInfo:
        """Resume the sandbox. `info.restored` says what it continues with.

        A running sandbox stays as it is.

        Args:
            timeout: Time from now to the deadline, in place of the sandbox's own timeout. The
                deadline of a sandbox that runs already is postponed, never brought forward.
            max_wait: How long to wait for room on the host. Default: not at all.
            if_busy: `wait`, the default, for another operation on the sandbox, or `refuse`.
            wait: False to return as soon as the operation has begun; `info.operation` names it.
        """
        body = {
            "timeout_secs": seconds(timeout),
            "max_wait_secs": seconds(max_wait),
            "if_busy": if_busy,
            "wait": wait,
        }
        return self._changed(ops.RESUME_SANDBOX(self.id, body=body))

    def evict(self) -> SandboxInfo:
        """Release the memory that the host still holds of the suspended sandbox.

        Its sleep image stays on disk.
        """
        return self._changed(ops.EVICT_SANDBOX(self.id))

    def terminate(self, *, if_busy: IfBusy | None = None, wait: bool | None = None) -> SandboxInfo:
        """Terminate the sandbox. Its memory and its files are deleted, its snapshots remain.

        Terminating a terminated sandbox succeeds.

        Args:
            if_busy: `wait`, the default, for another operation on the sandbox, or `refuse`.
            wait: False to return as soon as the operation has begun; `info.operation` names it.
        """
        body = {"if_busy": if_busy, "wait": wait}
        return self._changed(ops.TERMINATE_SANDBOX(self.id, body=body))

    def delete(self) -> SandboxInfo:
        """Terminate the sandbox with the method `DELETE`, for proxies that know only that."""
        return self._changed(ops.DELETE_SANDBOX(self.id))

    def extend(self, timeout: Duration) -> SandboxInfo:
        """Postpone the deadline: it is at least this time from now, and never brought forward.

        A sandbox without a timeout does not get one.
        """
        return self._changed(ops.EXTEND_SANDBOX(self.id, body={"timeout_secs": seconds(timeout)}))

    def set_timeouts(
        self,
        *,
        timeout: Duration | None = None,
        idle_timeout: Duration | None = None,
        max_run: Duration | None = None,
        timeout_after_wake: Duration | None = None,
    ) -> SandboxInfo:
        """Replace all time limits. A limit that is left out is removed.

        Args:
            timeout: Time from now to the deadline.
            idle_timeout: Time from the last activity to the deadline.
            max_run: Longest time that a run may last, from its start, even if it is held.
            timeout_after_wake: Like `timeout`, for a run that a call has woken.
        """
        body = {
            "timeout_secs": seconds(timeout),
            "idle_timeout_secs": seconds(idle_timeout),
            "max_run_secs": seconds(max_run),
            "timeout_after_wake_secs": seconds(timeout_after_wake),
        }
        return self._changed(ops.SET_TIMEOUTS(self.id, body=body))

    def hold(
        self,
        reason: str,
        ttl: Duration,
        *,
        renew: str | None = None,
        idempotency_key: str | None = None,
    ) -> Hold:
        """Keep the sandbox awake: no time limit but `max_run` ends it before the hold expires.

        Args:
            reason: Shown by `why`, 1 to 200 characters.
            ttl: Time from now until the hold expires.
            renew: ID of a hold to renew instead of making another.
            idempotency_key: A unique text; a repeated call with it makes no second hold.
        """
        body = {"reason": reason, "ttl_secs": seconds(ttl), "renew": renew}
        headers = {"Idempotency-Key": idempotency_key}
        return self._transport.json(ops.CREATE_HOLD(self.id, body=body, headers=headers), Hold)

    def release(self, hold: str) -> SandboxInfo:
        """End a hold."""
        return self._changed(ops.DELETE_HOLD(self.id, hold))

    def why(self) -> Why:
        """Explain the state of the sandbox, what happens next, and what is kept on disk for it."""
        return self._transport.json(ops.EXPLAIN_SANDBOX(self.id), Why)

    def events(
        self, *, after: int | None = None, newest: int | None = None, limit: int | None = None
    ) -> Iterator[Event]:
        """Yield the events of the sandbox that have happened, ordered by number.

        Args:
            after: Only events after the one with this number. Default: from the oldest on.
            newest: Only this many of the newest events, 1,000 at most.
            limit: Number of events in one response.
        """
        return list_events(self._transport, sandbox=self.id, after=after, newest=newest, limit=limit)

    @opens_stream
    def follow_events(self, *, after: int | None = None) -> Stream[Event]:
        """Stream the events of the sandbox as they happen, without an end.

        Args:
            after: Begin after the event with this number. Default: with the oldest event.
        """
        return follow_events(self._transport, sandbox=self.id, after=after)

    def usage(self) -> Usage:
        """Return what the sandbox uses of CPU, memory, disk and network."""
        return self._transport.json(ops.GET_SANDBOX_USAGE(self.id), Usage)

    def metrics(self, *, since: datetime | None = None, until: datetime | None = None) -> UsageHistory:
        """Return the usage in the last hour, or between two times in it."""
        query = {"since": since, "until": until}
        return self._transport.json(ops.GET_SANDBOX_METRICS(self.id, query=query), UsageHistory)
