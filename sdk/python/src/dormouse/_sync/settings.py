# Generated from _async/settings.py by scripts/generate_sync.py; do not edit.
"""Changes settings of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from .. import _operations as ops
from .._values import Duration, Size, millis, seconds, size
from ..types import (
    Egress,
    OnTimeout,
    OnUnrestorable,
    PortAccess,
    PortRule,
    SandboxInfo,
    SnapshotKind,
    Wake,
)
from .handle import Handle


class Settings(Handle):
    """Settings of a sandbox. Parameters that are left out do not change."""

    def update(
        self,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] | None = None,
        annotations: Mapping[str, Mapping[str, str | None]] | None = None,
        on_timeout: OnTimeout | None = None,
        wake: Wake | None = None,
        port_access: PortAccess | None = None,
        port_host: str | None = None,
        port_rules: Mapping[int, PortRule] | None = None,
    ) -> SandboxInfo:
        """Change properties, all of them or none.

        Args:
            name: A name. A sandbox that had none can be suspended from then on.
            labels: Labels to set, or with None to remove. Others stay.
            annotations: Annotations to set, or with None to remove, by the name of the program.
            on_timeout: Action at a deadline.
            wake: Calls that resume the sandbox when it is suspended.
            port_access: Who can reach its ports. Open connections stay.
            port_host: `Host` header that programs behind the ports get; empty for the original one.
            port_rules: Exceptions for single ports. A `PortRule()` without fields removes one.
        """
        body = {
            "name": name,
            "labels": labels,
            "annotations": annotations,
            "on_timeout": on_timeout,
            "wake": wake,
            "port_access": port_access,
            "port_host": port_host,
            "port_rules": None if port_rules is None else {str(k): v for k, v in port_rules.items()},
        }
        return self._changed(ops.UPDATE_SANDBOX(self.id, body=body))

    def resize(self, *, cpus: float | None = None, memory: Size | None = None) -> SandboxInfo:
        """Change the limits of CPU and memory, at once if the sandbox runs.

        Args:
            cpus: Number of CPUs, such as 0.5.
            memory: Memory, in bytes or as a text such as `"2G"`. A limit below what the sandbox uses is
                refused.
        """
        resources = {"cpu_millis": millis(cpus), "memory_bytes": size(memory)}
        given = {key: value for key, value in resources.items() if value is not None}
        return self._changed(ops.UPDATE_SANDBOX(self.id, body={"resources": given}))

    def set_egress(self, egress: Egress) -> SandboxInfo:
        """Replace the egress policy. Connections that it does not allow have ended afterwards.

        Args:
            egress: `"public"`, `"closed"`, `{"allow": ["example.com", "198.51.100.0/24"]}`, or
                `{"ordered": {"rules": [{"deny": ...}, {"allow": ...}], "default": "deny"}}`.
        """
        return self._changed(ops.SET_EGRESS(self.id, body={"egress": egress}))

    def set_retention(
        self, *, keep_generations: int | None = None, on_unrestorable: OnUnrestorable | None = None
    ) -> SandboxInfo:
        """Set how many sleep images are kept, and what happens if none can be restored.

        Args:
            keep_generations: Number of sleep images, 1 to 16.
            on_unrestorable: `fail`, `filesystem` or `fresh`.
        """
        body = {"keep_generations": keep_generations, "on_unrestorable": on_unrestorable}
        return self._changed(ops.SET_RETENTION(self.id, body=body))

    def set_checkpoints(
        self,
        *,
        every: Duration | None = None,
        keep: str | None = None,
        kind: SnapshotKind | None = None,
        off: bool | None = None,
    ) -> SandboxInfo:
        """Take snapshots on a schedule while the sandbox is used.

        Args:
            every: Time between two snapshots, from 10 seconds on.
            keep: Retention rule: `"5,48x1h"` keeps the newest 5, and one of each of the
                last 48 hours.
            kind: `filesystem` or `memory`.
            off: Take no more. Existing snapshots are kept.
        """
        body = {"every_secs": seconds(every), "keep": keep, "kind": kind, "off": off}
        return self._changed(ops.SET_CHECKPOINT_POLICY(self.id, body=body))

    def attach_volume(
        self, volume: str, path: str, *, read_only: bool | None = None, subpath: str | None = None
    ) -> SandboxInfo:
        """Attach a volume. A running sandbox gets it at once, any other at its next run.

        Args:
            volume: ID or name of the volume.
            path: Absolute path in the sandbox.
            read_only: Whether the sandbox may only read it.
            subpath: A directory of the volume to attach instead of its root.
        """
        body = {"volume": volume, "path": path, "read_only": read_only, "subpath": subpath}
        return self._changed(ops.ATTACH_VOLUME(self.id, body=body))

    def detach_volume(self, path: str) -> SandboxInfo:
        """Detach the volume at this path. Fails while programs in the sandbox use it."""
        return self._changed(ops.DETACH_VOLUME(self.id, query={"path": path}))
