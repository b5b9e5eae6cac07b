"""Features of the asynchronous client alone: cancellation, concurrency, and three ways to open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest
from fake_server import FakeServer, answer, event, output, until_closed
from test_retries import SANDBOX

from dormouse import AsyncClient, AsyncProcess, AsyncSandbox, Exit, Output
from dormouse.errors import NotFoundError

T = TypeVar("T")

pytestmark = pytest.mark.usefixtures("daemon")


def in_sandbox(test: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
    async def run() -> T:
        async with AsyncClient() as client, client.sandboxes.create("base") as sandbox:
            return await test(sandbox)

    return asyncio.run(run())


def test_a_sandbox_can_be_awaited_or_entered() -> None:
    async def run() -> None:
        async with AsyncClient() as client:
            sandbox = await client.sandboxes.create("base")
            async with sandbox:
                assert (await sandbox.exec("echo awaited")).stdout == "awaited\n"
            assert sandbox.state == "terminated"
            async with client.sandboxes.create("base") as entered:
                assert (await entered.exec("echo entered")).stdout == "entered\n"
            assert entered.state == "terminated"

    asyncio.run(run())


def test_an_error_at_the_opening_is_raised_from_the_with() -> None:
    async def run() -> None:
        async with AsyncClient() as client:
            with pytest.raises(NotFoundError):
                async with client.sandboxes.connect("no-such-sandbox"):
                    pass

    asyncio.run(run())


def test_a_stream_can_be_awaited_entered_or_iterated() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        process = await sandbox.start("echo once")
        await process.wait()
        stream = await process.events()
        kinds = [type(each) async for each in stream]
        await stream.aclose()
        async with process.events() as entered:
            assert [type(each) async for each in entered] == kinds
        assert [type(each) async for each in process.events()] == kinds == [Output, Exit]

    in_sandbox(test)


def test_commands_run_at_the_same_time() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        # Each command waits for the next one, so they end only if all of them run.
        await sandbox.exec("mkfifo /root/0 /root/1 /root/2 /root/3", check=True)
        lines = [f"echo {n} > /root/{n} & cat /root/{(n + 1) % 4}" for n in range(4)]
        results = await asyncio.gather(*(sandbox.exec(line) for line in lines))
        assert [result.stdout for result in results] == ["1\n", "2\n", "3\n", "0\n"]

    in_sandbox(test)


def test_a_cancelled_command_leaves_the_client_usable_and_the_command_running() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        started = asyncio.Event()
        task = asyncio.create_task(sandbox.exec("echo started; sleep 600", on_output=lambda _: started.set()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (running,) = [process async for process in sandbox.processes.list()]
        assert running.exit is None
        await sandbox.processes.get(running.process).kill()
        assert (await sandbox.exec("echo usable")).stdout == "usable\n"

    in_sandbox(test)


def test_a_command_can_have_a_deadline_of_asyncio() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sandbox.exec("sleep 600"), 0.2)

    in_sandbox(test)


def test_an_iteration_that_is_left_early_is_closed() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        process = await sandbox.start("echo one; sleep 600")
        async for each in process.events():
            assert isinstance(each, Output)
            break
        await process.kill()

    in_sandbox(test)


def test_a_terminal_reads_and_writes_at_the_same_time() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        async with sandbox.pty("stty -echo; while read line; do echo got $line; done") as terminal:

            async def type_lines() -> None:
                for number in range(20):
                    await terminal.write(f"{number}\n")
                await terminal.send_eof()

            typing = asyncio.create_task(type_lines())
            shown = b"".join([piece async for piece in terminal])
            await typing
        assert b"got 19\r\n" in shown

    in_sandbox(test)


def test_contents_can_come_from_an_asynchronous_generator() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(3):
                await asyncio.sleep(0)
                yield b"abc"

        await sandbox.files.write("/root/a", pieces())
        assert await sandbox.files.read("/root/a") == b"abcabcabc"
        process = await sandbox.start(["cat"], stdin=True)
        await process.feed(pieces())
        assert (await process.result()).stdout == "abcabcabc"

    in_sandbox(test)


def test_a_client_of_a_port_is_asynchronous() -> None:
    async def test(sandbox: AsyncSandbox) -> None:
        await sandbox.files.write("/srv/index.html", "hello")
        await sandbox.services.start("web", "python3 -m http.server --directory /srv 8000")
        port = await sandbox.ports.get(8000)
        async with port.client() as http:
            deadline = asyncio.get_running_loop().time() + 60
            while (response := await http.get("/index.html")).status_code == 502:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.05)
        assert response.text == "hello"

    in_sandbox(test)


@pytest.mark.parametrize("kind", ["events", "watch"])
def test_a_cancelled_stream_closes_its_connection(kind: str) -> None:
    closed = threading.Event()

    async def read(sandbox: AsyncSandbox, began: asyncio.Event) -> None:
        if kind == "watch":
            async for _ in sandbox.files.watch("/"):
                began.set()
        else:
            async for _ in AsyncProcess(sandbox._transport, sandbox.id, 7).events():
                began.set()

    async def run() -> None:
        async with AsyncClient(server.url) as client:
            sandbox = await client.sandboxes.connect("sbx")
            began = asyncio.Event()
            task = asyncio.create_task(read(sandbox, began))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(closed.wait, 30)

    first = event("created", {"kind": "created", "path": "/a"}) if kind == "watch" else output(0, "a")
    with FakeServer() as server:
        server.then(answer(200, SANDBOX), until_closed(first, closed=closed))
        asyncio.run(run())
