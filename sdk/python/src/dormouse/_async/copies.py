"""Takes snapshots of a sandbox, copies it, and replaces its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import _operations as ops
from .._values import Duration, decode, seconds
from ..errors import ApiError, PartialForkError, api_error
from ..types import (
    Diff,
    DiffOrder,
    FollowingVolumes,
    ForkChild,
    Keep,
    OnPartialFailure,
    OnTimeout,
    Promoted,
    Rewound,
    SandboxInfo,
    Snapshot,
    SnapshotKind,
    TreeNode,
)
from ._opening import opens
from .lifecycle import AsyncLifecycle

H = TypeVar("H", bound="AsyncCopies")


@dataclass(frozen=True)
class _WithSandbox:
    """A response that contains a sandbox."""

    sandbox: SandboxInfo


class AsyncCopies(AsyncLifecycle):
    """Snapshots, clones and forks of a sandbox."""

    async def checkpoint(
        self,
        *,
        kind: SnapshotKind | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        expires: Duration | None = None,
        wait: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Snapshot:
        """Take a snapshot. A running sandbox continues, a suspended one stays suspended.

        Args:
            kind: `filesystem`, the default, or `memory` for memory and processes as well.
            name: A name, `NAME` or `NAME:TAG`, under which the snapshot serves as an image.
            labels: Labels of the snapshot.
            expires: Time after which the snapshot is deleted automatically. Default: never.
            wait: False to return while the snapshot is in progress; see `snapshots.get`.
            idempotency_key: A unique text; a repeated call with it takes no second snapshot.
        """
        body = {
            "kind": kind,
            "name": name,
            "labels": labels,
            "expires_secs": seconds(expires),
            "wait": wait,
        }
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.CHECKPOINT_SANDBOX(self.id, body=body, headers=headers)
        return await self._transport.json(request, Snapshot)

    @opens
    async def clone(
        self: H,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        secrets: Mapping[str, str | None] | None = None,
        volumes: FollowingVolumes | None = None,
        timeout: Duration | None = None,
        idle_timeout: Duration | None = None,
        max_run: Duration | None = None,
        on_timeout: OnTimeout | None = None,
        idempotency_key: str | None = None,
    ) -> H:
        """Create a sandbox that continues from this moment, through a memory snapshot.

        The snapshot is kept; `info.snapshot` of the clone names it. `fork` keeps none. At the end
        of a `with`, the clone is terminated.

        Args:
            name: The name of the clone.
            env: Variables that override those of this sandbox.
            labels: Labels that override those of this sandbox.
            secrets: Secrets of the clone: a value, or None for the value of this sandbox. No other
                secrets are copied.
            volumes: How volumes are attached: `same`, the default, `read_only` or `none`.
            timeout: Time from the start of a run to its deadline.
            idle_timeout: Time from the last activity to the deadline.
            max_run: Longest time that a run may last.
            on_timeout: Action at a deadline.
            idempotency_key: A unique text; a repeated call with it makes no second clone.
        """
        body = {
            "name": name,
            "env": env,
            "labels": labels,
            "secrets": secrets,
            "volumes": volumes,
            "timeout_secs": seconds(timeout),
            "idle_timeout_secs": seconds(idle_timeout),
            "max_run_secs": seconds(max_run),
            "on_timeout": on_timeout,
        }
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.CLONE_SANDBOX(self.id, body=body, headers=headers)
        return self._other((await self._transport.json(request, _WithSandbox)).sandbox)

    async def fork(
        self: H,
        count: int | None = None,
        *,
        children: Sequence[ForkChild] | None = None,
        volumes: FollowingVolumes | None = None,
        on_partial_failure: OnPartialFailure | None = None,
        idempotency_key: str | None = None,
    ) -> list[H]:
        """Create sandboxes that all continue from this moment, with memory and processes.

        Give either `count` or `children`.

        Args:
            count: Number of children without names and with the settings of this sandbox, 1 to 256.
            children: The settings of each child.
            volumes: How volumes are attached: `same`, the default, `read_only` or `none`.
            on_partial_failure: With `roll_back`, all children exist or none. With `keep`, the
                default, those that could be created stay.
            idempotency_key: A unique text; a repeated call with it makes no further children.

        Raises:
            PartialForkError: Only some children could be created. It has them.
        """
        body = {
            "count": count,
            "children": children,
            "volumes": volumes,
            "on_partial_failure": on_partial_failure,
        }
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.FORK_SANDBOX(self.id, body=body, headers=headers)
        made: list[H] = []
        errors: list[ApiError] = []
        for child in await self._transport.items(request, "children", dict[str, Any]):
            if child.get("sandbox") is not None:
                made.append(self._other(decode(SandboxInfo, child["sandbox"])))
            else:
                errors.append(api_error(child["error"]))
        if errors:
            raise PartialForkError(made, errors)
        return made

    async def rewind(
        self,
        snapshot: str,
        *,
        keep: Duration | Keep | None = None,
        idempotency_key: str | None = None,
    ) -> Rewound:
        """Replace the state of the sandbox with that of a snapshot. Its id, name and ports stay.

        After a memory snapshot, its processes continue; after a filesystem snapshot, the sandbox
        boots from the files.

        Args:
            snapshot: ID of the snapshot.
            keep: How long the state before the rewind is kept as a snapshot, whose id is `future`
                of the result: a time, `forever` or `none`. Default: 7 days.
            idempotency_key: A unique text; a repeated call with it does not rewind again.
        """
        body = {"to": snapshot, **_keep(keep)}
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.REWIND_SANDBOX(self.id, body=body, headers=headers)
        rewound = await self._transport.json(request, Rewound)
        self.info = rewound.sandbox
        return rewound

    async def promote(
        self, *, keep: Duration | Keep | None = None, idempotency_key: str | None = None
    ) -> Promoted:
        """Let the sandbox that this one was forked from continue with the state of this one.

        That sandbox keeps its id, name, ports and settings; this one is terminated.

        Args:
            keep: How long the previous state of the parent is kept as a snapshot, whose id is
                `future` of the result: a time, `forever` or `none`. Default: 7 days.
            idempotency_key: A unique text; a repeated call with it does not promote again.
        """
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.PROMOTE_SANDBOX(self.id, body=_keep(keep), headers=headers)
        return await self._transport.json(request, Promoted)

    @opens
    async def restart(self: H, *, name: str | None = None, idempotency_key: str | None = None) -> H:
        """Create a sandbox from the newest snapshot of this terminated one, with its settings.

        `info.snapshot` of the new sandbox names the snapshot. At the end of a `with`, the new
        sandbox is terminated.

        Args:
            name: The name of the new sandbox. Default: that of this one.
            idempotency_key: A unique text; a repeated call with it makes no second sandbox.
        """
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.RESTART_SANDBOX(self.id, body={"name": name}, headers=headers)
        return self._other((await self._transport.json(request, _WithSandbox)).sandbox)

    async def diff(self, other: str, *, order: DiffOrder | None = None) -> Diff:
        """Compare the files of this sandbox with those of a snapshot or of another sandbox.

        Args:
            other: ID of a snapshot, or ID or name of a sandbox.
            order: With `time`, the default, the comparison goes from the older side to the newer;
                with `given`, from this sandbox to the other side.
        """
        query = {"from": self.id, "to": other, "order": order}
        return await self._transport.json(ops.DIFF_FILES(query=query), Diff)

    async def tree(self, *, all: bool | None = None) -> list[TreeNode]:
        """Return the lineage of this sandbox: what it comes from, and what comes from it.

        Args:
            all: Also terminated sandboxes and deleted snapshots without living descendants.
        """
        query = {"sandbox": self.id, "all": all}
        return await self._transport.items(ops.GET_TREE(query=query), "nodes", TreeNode)

    def _other(self: H, info: SandboxInfo) -> H:
        return type(self)(self._transport, info, on_exit="terminate")


def _keep(keep: Duration | Keep | None) -> dict[str, Any]:
    return {"keep": keep} if isinstance(keep, str) else {"keep_secs": seconds(keep)}
