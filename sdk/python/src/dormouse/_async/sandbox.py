"""Sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from .. import _operations as ops
from .._values import Duration, Size, millis, seconds, size
from ..types import (
    AttachVolume,
    CheckpointsRequest,
    Egress,
    OnSuspendFailure,
    OnTimeout,
    OnUnrestorable,
    PortAccess,
    PortRule,
    Pull,
    ResourcesRequest,
    SandboxInfo,
    State,
    Wake,
)
from ._opening import opens
from ._transport import AsyncTransport
from .archives import AsyncArchives
from .copies import AsyncCopies
from .files import AsyncFiles
from .handle import OnExit
from .ports import AsyncPorts
from .process import AsyncProcesses
from .services import AsyncServices
from .settings import AsyncSettings
from .watchers import AsyncWatchers


class AsyncSandbox(AsyncCopies, AsyncSettings, AsyncArchives):
    """A sandbox: an isolated Linux computer.

    It is a context manager. At the end of the `with`, a sandbox that this client created is
    terminated, and one that it connected to is left as it is; `on_exit` changes that.
    """

    @cached_property
    def files(self) -> AsyncFiles:
        """The files of the sandbox."""
        return AsyncFiles(self._transport, self.id)

    @cached_property
    def processes(self) -> AsyncProcesses:
        """The processes of the sandbox."""
        return AsyncProcesses(self._transport, self.id)

    @cached_property
    def ports(self) -> AsyncPorts:
        """The ports of the sandbox."""
        return AsyncPorts(self._transport, self.id)

    @cached_property
    def services(self) -> AsyncServices:
        """The services of the sandbox."""
        return AsyncServices(self._transport, self.id)

    @cached_property
    def watchers(self) -> AsyncWatchers:
        """The watchers of the sandbox."""
        return AsyncWatchers(self._transport, self.id)

    def with_options(self, *, wake: Wake | None = None, if_revision: int | None = None) -> AsyncSandbox:
        """Return the same sandbox with options for its calls.

        Args:
            wake: `any` to let calls for commands, files and processes resume a suspended sandbox,
                `never` for an error then. Default: the `wake` policy of the sandbox.
            if_revision: Let calls that change the sandbox fail with status 412 unless its revision,
                `info.revision`, is this one.
        """
        headers = {"X-Dormouse-Wake": wake, "If-Match": None if if_revision is None else f'"{if_revision}"'}
        return AsyncSandbox(self._transport.with_headers(headers), self.info, on_exit=self.on_exit)


class AsyncSandboxes:
    """The sandboxes of a project."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    @opens
    async def create(
        self,
        image: str | None = None,
        *,
        snapshot: str | None = None,
        template: str | None = None,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, Mapping[str, str]] | None = None,
        cpus: float | None = None,
        memory: Size | None = None,
        disk: Size | None = None,
        processes: int | None = None,
        volumes: Sequence[AttachVolume] | None = None,
        egress: Egress | None = None,
        timeout: Duration | None = None,
        idle_timeout: Duration | None = None,
        max_run: Duration | None = None,
        timeout_after_wake: Duration | None = None,
        on_timeout: OnTimeout | None = None,
        wake: Wake | None = None,
        suspendable: bool | None = None,
        keep_generations: int | None = None,
        on_suspend_failure: OnSuspendFailure | None = None,
        on_unrestorable: OnUnrestorable | None = None,
        checkpoints: CheckpointsRequest | None = None,
        port_access: PortAccess | None = None,
        port_host: str | None = None,
        port_rules: Mapping[int, PortRule] | None = None,
        pull: Pull | None = None,
        start: bool | None = None,
        wait: bool | None = None,
        max_wait: Duration | None = None,
        idempotency_key: str | None = None,
        on_exit: OnExit = "terminate",
    ) -> AsyncSandbox:
        """Create a sandbox from an image, a snapshot or a template: exactly one of them is given.

        Args:
            image: A tag, a digest, or the name of an image in a registry or of a snapshot.
            snapshot: ID of a snapshot. A memory snapshot continues, a filesystem snapshot boots.
            template: A template, `NAME` or `NAME:TAG`.
            name: A unique name: 1 to 63 lower-case letters, digits and hyphens. A sandbox without a
                name is ephemeral: it cannot be suspended with its memory.
            env: Variables of every process.
            secrets: Variables whose values are stored encrypted and are not inherited by copies.
            labels: Labels, by which `list` selects.
            annotations: Notes of programs, by the name of the program, then by key.
            cpus: Number of CPUs, such as 0.5.
            memory: Limit of memory, in bytes or as a text such as `"2G"`.
            disk: Limit of disk.
            processes: Limit of the number of processes.
            volumes: Volumes to attach.
            egress: Where the sandbox may connect to: `"public"`, `"closed"`, `"none"`, or
                `{"allow": ["example.com"]}`.
            timeout: Time from the start of a run to its deadline. Default: none.
            idle_timeout: Time from the last activity to the deadline. Default: none.
            max_run: Longest time that a run may last, even if it is held. Default: none.
            timeout_after_wake: Like `timeout`, for a run that a call has woken.
            on_timeout: Action at a deadline. Default: `suspend` for a named sandbox, otherwise
                `terminate`.
            wake: Calls that resume the sandbox when it is suspended: `never`, `traffic` (the default)
                or `any`.
            suspendable: Whether the sandbox can be suspended. Default: whether it has a name.
            keep_generations: How many sleep images are kept, 1 to 16. Default: 1.
            on_suspend_failure: Action if the sandbox cannot be suspended at a deadline.
            on_unrestorable: Action if no sleep image can be restored.
            checkpoints: Take snapshots on a schedule.
            port_access: Who can reach its ports: `public` or `private`.
            port_host: `Host` header that programs behind the ports get.
            port_rules: Exceptions for single ports.
            pull: When to contact a registry for the image.
            start: Start the entrypoint of the image, and wait until it is ready.
            wait: False to return while the sandbox is starting.
            max_wait: How long to wait for room on the host. Default: not at all.
            idempotency_key: A unique text; a repeated call with it makes no second sandbox. Without
                it, the client makes one, for its own retries.
            on_exit: Action at the end of a `with`: `terminate`, `suspend` or `leave`.
        """
        resources = ResourcesRequest(
            cpu_millis=millis(cpus),
            memory_bytes=size(memory),
            disk_bytes=size(disk),
            processes=processes,
        )
        body = {
            "image": image,
            "snapshot": snapshot,
            "template": template,
            "name": name,
            "env": env,
            "secrets": secrets,
            "labels": labels,
            "annotations": annotations,
            "resources": None if resources == ResourcesRequest() else resources,
            "volumes": volumes,
            "egress": egress,
            "timeout_secs": seconds(timeout),
            "idle_timeout_secs": seconds(idle_timeout),
            "max_run_secs": seconds(max_run),
            "timeout_after_wake_secs": seconds(timeout_after_wake),
            "on_timeout": on_timeout,
            "wake": wake,
            "suspendable": suspendable,
            "keep_generations": keep_generations,
            "on_suspend_failure": on_suspend_failure,
            "on_unrestorable": on_unrestorable,
            "checkpoints": checkpoints,
            "port_access": port_access,
            "port_host": port_host,
            "port_rules": None if port_rules is None else {str(k): v for k, v in port_rules.items()},
            "pull": pull,
            "start": start,
            "wait": wait,
            "max_wait_secs": seconds(max_wait),
        }
        headers = {"Idempotency-Key": idempotency_key}
        info = await self._transport.json(ops.CREATE_SANDBOX(body=body, headers=headers), SandboxInfo)
        return AsyncSandbox(self._transport, info, on_exit=on_exit)

    @opens
    async def connect(self, id_or_name: str, *, on_exit: OnExit = "leave") -> AsyncSandbox:
        """Return an existing sandbox, in any state. It is neither resumed nor kept awake.

        Args:
            id_or_name: The id of a sandbox, or the name of a living one.
            on_exit: Action at the end of a `with`: `terminate`, `suspend` or `leave`.
        """
        info = await self._transport.json(ops.GET_SANDBOX(id_or_name), SandboxInfo)
        return AsyncSandbox(self._transport, info, on_exit=on_exit)

    async def list(
        self,
        *,
        state: State | Sequence[State] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        sort: Literal["id", "created", "started"] | None = None,
        order: Literal["asc", "desc"] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[AsyncSandbox]:
        """Yield sandboxes.

        Args:
            state: Only sandboxes in this state, or one of these. Default: also terminated ones.
            name: Only the sandbox with this name.
            labels: Only sandboxes with all of these labels.
            sort: `id`, the default, `created`, or `started` for when they last began to run.
            order: `asc`, the default, or `desc`.
            limit: Number of sandboxes in one response.
        """
        query = {
            "state": state if state is None or isinstance(state, str) else ",".join(state),
            "name": name,
            "label": [f"{key}={value}" for key, value in (labels or {}).items()],
            "sort": sort,
            "order": order,
            "limit": limit,
        }
        async for info in self._transport.pages(ops.LIST_SANDBOXES(query=query), "sandboxes", SandboxInfo):
            yield AsyncSandbox(self._transport, info)
