"""Python: an IPython kernel, over Jupyter's protocol on Unix sockets."""

import asyncio
import hmac
import json
import os
import shutil
import sys
import tempfile

import zmq
from jupyter_client.session import Session

from .. import output
from .process import ROOT, Process

LAUNCH = os.path.join(ROOT, "kernel", "launch.py")
# In memory, so that no boot from files finds sockets of an earlier one.
DIRECTORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
# A kernel that is starting may miss the first questions.
ASK_AGAIN_S = 0.2


class PythonKernel(Process):
    name = "Python kernel"

    @classmethod
    async def start(cls, _language, directory, variables):
        place = tempfile.mkdtemp(prefix="code-interpreter-", dir=DIRECTORY)
        try:
            connection = Connection(place)
            process = await cls.spawned(
                [sys.executable, LAUNCH, "-f", connection.file],
                directory,
                variables,
                stdout=asyncio.subprocess.DEVNULL,
            )
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        self = cls(process, variables)
        self._place = place
        self._connection = connection
        self._current = None
        self._seen = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        try:
            await self.unless_ended(self._answering())
        except BaseException:
            await self.close()
            raise
        return self

    async def execute(self, run, variables):
        await self._executed(run.code, run, variables=run.variables, changes=self.changes(variables))

    async def load(self, modules):
        """Imports modules, so that the first code that does is faster. They get no names."""
        if modules:
            await self._executed(f"[__import__(name) for name in {list(modules)!r}]", None)

    async def _executed(self, code, run, **metadata):
        """Executes code for a run, or silently for none."""
        content = {
            "code": code,
            "silent": run is None,
            "store_history": run is not None,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        idle = asyncio.get_running_loop().create_future()
        message = self._connection.session.msg("execute_request", content, metadata=metadata)
        self._current = (message["header"]["msg_id"], run, idle)
        try:
            await self._connection.send(message)
            await self.unless_ended(idle)
        finally:
            self._current = None

    async def close(self):
        await super().close()
        self._reader.cancel()
        self._connection.close()
        shutil.rmtree(self._place, ignore_errors=True)

    async def _answering(self):
        """Waits until the kernel answers, and what it publishes arrives."""
        while not self._seen.is_set():
            await self._connection.send(self._connection.session.msg("kernel_info_request", {}))
            try:
                await asyncio.wait_for(self._seen.wait(), ASK_AGAIN_S)
            except TimeoutError:
                pass

    async def _read(self):
        """Reads all that the kernel publishes. It waits for a reader that is slow, and loses nothing."""
        while True:
            parts = await self._connection.published()
            try:
                await self._take(*self._connection.read(parts))
            except (AttributeError, KeyError, TypeError, ValueError):
                # The code of a user has sent something that is not a message of a kernel.
                continue

    async def _take(self, kind, parent, content):
        self._seen.set()
        if self._current is None:
            return
        identifier, run, idle = self._current
        if parent != identifier:
            return
        if kind == "status":
            if content["execution_state"] == "idle" and not idle.done():
                idle.set_result(None)
        elif run is not None and (line := line_of(kind, content)) is not None:
            await run.put(line)


def line_of(kind, content):
    """The line for a message of the kernel; `None` if clients do not get it."""
    if kind == "stream":
        return output.text(content["name"], content["text"])
    if kind in ("display_data", "execute_result"):
        bundle = content["data"]
        if "text/plain" in bundle:
            bundle = {**bundle, "text/plain": output.unquoted(bundle["text/plain"])}
        return output.result(bundle, kind == "execute_result")
    if kind == "error":
        return output.error(content["ename"], content["evalue"], "\n".join(content["traceback"]))
    if kind == "execute_input":
        return output.started(content["execution_count"])
    return None


class Connection:
    """The sockets to one kernel."""

    def __init__(self, place):
        key = os.urandom(32).hex()
        self.session = Session(key=key.encode())
        self.file = os.path.join(place, "connection.json")
        info = {
            "transport": "ipc",
            "ip": os.path.join(place, "socket"),
            "shell_port": 1,
            "iopub_port": 2,
            "stdin_port": 3,
            "control_port": 4,
            "hb_port": 5,
            "key": key,
            "signature_scheme": "hmac-sha256",
        }
        with open(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(info, file)
        self._shell = Socket(zmq.DEALER, f"{info['ip']}-1")
        self._published = Socket(zmq.SUB, f"{info['ip']}-2", zmq.SUBSCRIBE)

    async def send(self, message):
        await self._shell.send(self.session.serialize(message))
        # Replies say nothing that is not published as well.
        while self._shell.received() is not None:
            pass

    async def published(self):
        """The parts of the next message."""
        return await self._published.receive()

    def read(self, parts):
        """The kind of a message, the id of the request it belongs to, and its content. Its dates are not parsed, which
        would take longer than all else."""
        _, parts = self.session.feed_identities(parts)
        signature, header, parent, metadata, content = parts[:5]
        if not hmac.compare_digest(self.session.sign([header, parent, metadata, content]), signature):
            raise ValueError("the signature is another")
        return json.loads(header)["msg_type"], json.loads(parent).get("msg_id"), json.loads(content)

    def close(self):
        self._shell.close()
        self._published.close()


class Socket:
    """A socket of ZeroMQ in the event loop, without the tasks and timers of its own interface to that."""

    def __init__(self, kind, path, *options):
        self._socket = zmq.Context.instance().socket(kind)
        for option in options:
            self._socket.setsockopt(option, b"")
        self._socket.connect(f"ipc://{path}")
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor = self._socket.getsockopt(zmq.FD)
        self._loop.add_reader(self._descriptor, self._note)

    def _note(self):
        # This takes the news from the descriptor, which could otherwise be read until somebody receives.
        self._socket.getsockopt(zmq.EVENTS)
        self._changed.set()

    async def send(self, parts):
        while True:
            self._changed.clear()
            try:
                return self._socket.send_multipart(parts, zmq.NOBLOCK)
            except zmq.Again:
                await self._changed.wait()

    async def receive(self):
        while True:
            self._changed.clear()
            if (parts := self.received()) is not None:
                return parts
            await self._changed.wait()

    def received(self):
        """Returns a message that has arrived; `None` if there is none now."""
        try:
            return self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def close(self):
        self._loop.remove_reader(self._descriptor)
        self._socket.close(linger=0)
