"""The base of a sandbox and of its parts."""

from __future__ import annotations

from typing import Literal

from .._request import Request
from ..types import SandboxInfo, State
from ._transport import AsyncTransport

OnExit = Literal["terminate", "suspend", "leave"]
"""Action on a sandbox at the end of its `with` statement."""


class AsyncHandle:
    """A sandbox, with what the daemon last said about it."""

    info: SandboxInfo
    """The properties of the sandbox, as of the last call that returned them."""

    on_exit: OnExit
    """Action on the sandbox at the end of its `with` statement."""

    def __init__(self, transport: AsyncTransport, info: SandboxInfo, *, on_exit: OnExit = "leave") -> None:
        self._transport = transport
        self.info = info
        self.on_exit = on_exit

    @property
    def id(self) -> str:
        """The id of the sandbox. It never changes and is never reused."""
        return self.info.id

    @property
    def name(self) -> str | None:
        """The name of the sandbox, if it has one."""
        return self.info.name

    @property
    def state(self) -> State:
        """The state of the sandbox, as of the last call. `refresh` asks for the current one."""
        return self.info.state

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__}{name} {self.id} {self.state}>"

    async def _changed(self, request: Request) -> SandboxInfo:
        """Send a request whose response is the sandbox."""
        self.info = await self._transport.json(request, SandboxInfo)
        return self.info


class AsyncPart:
    """A part of a sandbox: its files, its processes, …"""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox
