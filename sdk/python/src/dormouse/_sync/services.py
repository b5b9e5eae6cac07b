# Generated from _async/services.py by scripts/generate_sync.py; do not edit.
"""Services: commands that the sandbox starts again when they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import _operations as ops
from .._process import Position, ProcessEvent
from .._values import Duration, Path, Size, Text, command, decode, seconds, size, text
from ..types import HealthCheck, Restart, ServiceEvent, ServiceInfo
from ._opening import opens_stream
from .handle import Part
from .process import output_stream
from .stream import Stream


class Services(Part):
    """The services of a sandbox.

    A service continues when the daemon ends and across a suspend. A boot from files ends it.
    """

    def start(
        self,
        name: str,
        command_line: str | Sequence[Text],
        *,
        restart: Restart | None = None,
        health: HealthCheck | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        restart_delay: Duration | None = None,
        restart_delay_max: Duration | None = None,
        restart_window: Duration | None = None,
        max_restarts: int | None = None,
        output_kept: Size | None = None,
    ) -> ServiceInfo:
        """Start a service.

        Args:
            name: 1 to 64 letters, digits, `.`, `_` and `-`. A service of this name that is over is
                replaced.
            command_line: A string is a line for `/bin/sh`, a sequence is a program and its arguments.
            restart: `never`, `on_failure` (the default) or `always`.
            health: A check of a port. Default: none.
            env: Variables in addition to those of the sandbox.
            cwd: Working directory. Default: that of the image, or the home directory of the user.
            user: A name, a number, or `UID:GID`. Default: the user of the image, or root.
            restart_delay: Pause before the first restart. It doubles with each. Default: 1 second.
            restart_delay_max: Longest pause. Default: 60 seconds.
            restart_window: Time in which restarts are counted. Default: 600 seconds.
            max_restarts: Restarts in that time after which the service has failed. Default: 10.
            output_kept: How much of each output stream is kept for readers. Default: 1 MiB.
        """
        body = {
            **command(command_line),
            "name": name,
            "restart": restart,
            "health": health,
            "env": env,
            "cwd": text(cwd),
            "user": user,
            "restart_delay_secs": seconds(restart_delay),
            "restart_delay_max_secs": seconds(restart_delay_max),
            "restart_window_secs": seconds(restart_window),
            "max_restarts": max_restarts,
            "output_kept_bytes": size(output_kept),
        }
        return self._transport.json(ops.START_SERVICE(self._sandbox, body=body), ServiceInfo)

    def list(self) -> list[ServiceInfo]:
        """Return all services, also those that are over, ordered by name."""
        return self._transport.items(ops.LIST_SERVICES(self._sandbox), "services", ServiceInfo)

    def get(self, name: str) -> ServiceInfo:
        """Return a service."""
        return self._transport.json(ops.GET_SERVICE(self._sandbox, name), ServiceInfo)

    def stop(self, name: str, *, grace: Duration | None = None) -> ServiceInfo:
        """Stop a service: SIGTERM, and SIGKILL for what is left of it after the grace.

        Args:
            name: The service.
            grace: Time between the two signals.
        """
        body = {"grace_secs": seconds(grace)}
        return self._transport.json(ops.STOP_SERVICE(self._sandbox, name, body=body), ServiceInfo)

    def remove(self, name: str) -> None:
        """Remove a service with its output and its events. It is stopped first."""
        self._transport.send(ops.REMOVE_SERVICE(self._sandbox, name))

    def events(self, name: str, *, limit: int | None = None) -> Iterator[ServiceEvent]:
        """Yield what has happened to a service, the oldest first. About 1,000 events are kept.

        Args:
            name: The service.
            limit: Number of events in one response.
        """
        query: dict[str, Any] = {"limit": limit}
        while True:
            request = ops.LIST_SERVICE_EVENTS(self._sandbox, name, query=query)
            page = self._transport.json(request, dict[str, Any])
            for event in page["events"]:
                yield decode(ServiceEvent, event)
            if not page["more"]:
                return
            query["after"] = page["next"]

    @opens_stream
    def output(
        self, name: str, *, after: Position | None = None, follow: bool | None = None
    ) -> Stream[ProcessEvent]:
        """Stream the output of all runs of a service. The last event is `Exit`, when it is over.

        Args:
            name: The service.
            after: The position at which to begin. Default: the beginning of the output.
            follow: False to end with the output that exists now, without an `Exit`.
        """
        begin = after or Position()
        query = {"stdout": begin.stdout, "stderr": begin.stderr, "follow": follow}
        request = ops.STREAM_SERVICE_OUTPUT(self._sandbox, name, query=query)
        return output_stream(self._transport, request, follow)
