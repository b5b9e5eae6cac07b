"""A thousand commands that are open at once, in four sandboxes.

Each one prints a line, waits, and prints another one. Of the four sandboxes one is killed and one is paused meanwhile;
the commands of the others hear nothing of that. Each command gets its own lines, or an error when its sandbox is gone.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# All sandboxes have one address here, to which clients permit 200 connections by default.
os.environ["E2B_MAX_CONNECTIONS"] = "2000"

from e2b import AsyncSandbox
from e2b.exceptions import SandboxException

COMMANDS = 250
# How many a client starts at a time.
AT_A_TIME = 25
GATE = "/tmp/gate"
DEADLINE_SECS = 300


@dataclass
class Crowd:
    """The commands of one sandbox, and the program that keeps them waiting."""

    sandbox: AsyncSandbox
    gate: Any
    handles: list[Any]
    printed: list[str]

    @classmethod
    async def begun(cls) -> Crowd:
        """Create a sandbox, and commands that have all printed their first line."""
        sandbox = await AsyncSandbox.create(timeout=3600, metadata={"case": "crowd"})
        await sandbox.commands.run(f"mkfifo {GATE}")
        gate = await sandbox.commands.run(f"exec sleep infinity <>{GATE}", background=True, timeout=0)
        printed = [""] * COMMANDS
        has_begun = [asyncio.Event() for _ in printed]
        turns = asyncio.Semaphore(AT_A_TIME)

        async def begin(number: int) -> Any:
            def hear(text: str) -> None:
                printed[number] += text
                has_begun[number].set()

            command = f"exec 3<{GATE}; echo begins {number}; read -r -u 3; echo ends {number}"
            async with turns:
                handle = await sandbox.commands.run(command, background=True, timeout=0, on_stdout=hear)
                await has_begun[number].wait()
            return handle

        handles = await asyncio.gather(*(begin(number) for number in range(COMMANDS)))
        assert printed == [f"begins {number}\n" for number in range(COMMANDS)]
        return cls(sandbox, gate, handles, printed)

    async def is_undisturbed(self) -> None:
        """Check that the sandbox answers, and that its commands still wait."""
        assert (await self.sandbox.commands.run("echo here")).stdout == "here\n"
        assert self.printed == [f"begins {number}\n" for number in range(COMMANDS)]

    async def results(self) -> list[Any]:
        """Return the results of all commands, or their errors."""
        return await asyncio.gather(*(handle.wait() for handle in self.handles), return_exceptions=True)

    async def ends(self) -> None:
        """Let the commands end, and check what each of them has printed."""
        assert await self.gate.kill() is True
        for number, result in enumerate(await self.results()):
            assert (result.exit_code, result.stdout) == (0, f"begins {number}\nends {number}\n"), result
        await self.sandbox.kill()

    async def is_killed(self) -> None:
        """Kill the sandbox, and check that each command ends with an error of the client."""
        assert await self.sandbox.kill() is True
        for result in await self.results():
            assert isinstance(result, SandboxException), repr(result)

    async def is_paused(self) -> None:
        """Pause the sandbox, and check that its commands continue after it."""
        assert await self.sandbox.pause() is True
        for result in await self.results():
            assert isinstance(result, SandboxException), repr(result)
        await self.sandbox.connect(timeout=3600)
        running = {process.pid for process in await self.sandbox.commands.list()}
        assert {handle.pid for handle in self.handles} <= running
        turns = asyncio.Semaphore(AT_A_TIME)

        async def again(handle: Any) -> Any:
            async with turns:
                return await self.sandbox.commands.connect(handle.pid, timeout=0)

        self.handles = await asyncio.gather(*(again(handle) for handle in self.handles))
        assert await self.sandbox.commands.kill(self.gate.pid) is True
        for number, result in enumerate(await self.results()):
            assert result.exit_code == 0, result
            assert result.stdout.endswith(f"ends {number}\n"), result
        await self.sandbox.kill()


async def main() -> None:
    quiet, ended, killed, paused = [await Crowd.begun() for _ in range(4)]
    for change in (ended.ends(), killed.is_killed(), paused.is_paused()):
        await asyncio.gather(change, quiet.is_undisturbed())
    await quiet.is_undisturbed()
    await quiet.ends()
    if "E2B_SUMMARY" in os.environ:
        count = 4 * COMMANDS
        Path(os.environ["E2B_SUMMARY"]).write_text(f"E2B: {count} commands were open at once in four sandboxes\n")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(), DEADLINE_SECS))
