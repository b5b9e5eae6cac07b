"""A kernel that is told what to run over a pipe, and writes its output and its messages into others.

Its messages are JSON, one a line. What it has written before a message is read before that message, so the order of
output and results is that of the code.
"""

import asyncio
import codecs
import json
import os

from .. import output
from ..errors import KernelEnded
from .process import Process

# The most that is read from a pipe before it is sent on.
PIECE = 1 << 20
# A message with a longer line is dropped.
MESSAGE_BYTES_MAX = 256 << 20


class PipedKernel(Process):
    @classmethod
    async def start(cls, language, directory, variables):
        pipes = Pipes()
        try:
            process = await cls.spawned(
                cls.arguments(language, pipes),
                directory,
                variables,
                stdin=cls.stdin(pipes),
                stdout=pipes.stdout[1],
                stderr=pipes.stderr[1],
                pass_fds=cls.inherited(pipes),
            )
        except BaseException:
            pipes.close_ours()
            raise
        finally:
            pipes.close_theirs()
        self = cls(process, variables, pipes)
        try:
            await self.unless_ended(self._asked(self.greeting()))
        except BaseException:
            await self.close()
            raise
        return self

    def __init__(self, process, variables, pipes):
        super().__init__(process, variables)
        self._pipes = pipes
        self._received = b""
        self._outputs = [Output("stdout", pipes.stdout[0]), Output("stderr", pipes.stderr[0])]
        self._count = 0
        self._run = None
        self._done = None
        self._reader = asyncio.create_task(self._read())

    @classmethod
    def stdin(cls, _pipes):
        return asyncio.subprocess.DEVNULL

    @classmethod
    def inherited(cls, pipes):
        return [pipes.questions[0], pipes.messages[1]]

    async def execute(self, run, variables):
        self._count += 1
        self._run = run
        try:
            await run.put(output.started(self._count))
            return await self.unless_ended(self._asked(self.question(run, self.changes(variables))))
        except KernelEnded:
            # It may have said why.
            await self._drain()
            raise
        finally:
            self._run = None

    async def _asked(self, question):
        """Sends a question; returns the message that answers it."""
        self._done = asyncio.get_running_loop().create_future()
        await self.send(question)
        return await self._done

    async def send(self, text):
        rest = memoryview(text.encode("utf-8", "surrogatepass"))
        while rest:
            try:
                rest = rest[os.write(self._pipes.questions[1], rest) :]
            except BlockingIOError:
                await writable(self._pipes.questions[1])
            except BrokenPipeError:
                await asyncio.wait({self._end})
                return

    async def close(self):
        await super().close()
        self._reader.cancel()
        await asyncio.wait({self._reader})
        self._pipes.close_ours()

    async def _read(self):
        """Reads all that the kernel writes. A client that is slow makes the code wait."""
        messages = self._pipes.messages[0]
        watched = {messages, *(stream.descriptor for stream in self._outputs)}
        while watched:
            ready = await readable(watched)
            await self._drain()
            if messages in ready:
                piece = os.read(messages, PIECE)
                if piece:
                    await self._take(piece)
                else:
                    watched.discard(messages)
            watched.difference_update(stream.descriptor for stream in self._outputs if stream.ended)

    async def _take(self, piece):
        *lines, self._received = (self._received + piece).split(b"\n")
        if len(self._received) > MESSAGE_BYTES_MAX:
            self._received = b""
        for line in lines:
            # The output before a message is in the pipes by now.
            await self._drain()
            try:
                message = json.loads(line)
            except ValueError:
                # Written by the code of a user.
                continue
            if message["type"] != "done":
                if self._run is not None:
                    await self._run.put(line_of(message))
            elif self._done is not None and not self._done.done():
                self._done.set_result(message)

    async def _drain(self):
        for stream in self._outputs:
            while text := stream.read():
                if self._run is not None:
                    await self._run.put(output.text(stream.name, text))


def line_of(message):
    if message["type"] == "bundle":
        return output.result(message["data"], message["main"])
    return message


class Pipes:
    """The pipes of a kernel: what it is told, what it answers, and its output."""

    def __init__(self):
        self.questions, self.messages = os.pipe(), os.pipe()
        self.stdout, self.stderr = os.pipe(), os.pipe()
        for descriptor in self._ours():
            os.set_blocking(descriptor, False)

    def _ours(self):
        return [self.questions[1], self.messages[0], self.stdout[0], self.stderr[0]]

    def close_ours(self):
        for descriptor in self._ours():
            os.close(descriptor)

    def close_theirs(self):
        for descriptor in (self.questions[0], self.messages[1], self.stdout[1], self.stderr[1]):
            os.close(descriptor)


class Output:
    """The end of a pipe from which the output of a kernel is read."""

    def __init__(self, name, descriptor):
        self.name = name
        self.descriptor = descriptor
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self):
        """The bytes in the pipe now, up to a limit; empty if there are none."""
        pieces, size = [], 0
        while size < PIECE:
            try:
                piece = os.read(self.descriptor, PIECE)
            except BlockingIOError:
                break
            if not piece:
                self.ended = True
                break
            pieces.append(piece)
            size += len(piece)
        return self._decoder.decode(b"".join(pieces))


async def readable(descriptors):
    """Waits until something can be read; returns what can be. Nothing is watched afterwards, since a descriptor that
    is not read would not let the loop rest."""
    loop = asyncio.get_running_loop()
    ready, some = set(), asyncio.Event()

    def note(descriptor):
        ready.add(descriptor)
        some.set()

    for descriptor in descriptors:
        loop.add_reader(descriptor, note, descriptor)
    try:
        await some.wait()
        return ready
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)


async def writable(descriptor):
    """Waits until something can be written."""
    loop = asyncio.get_running_loop()
    some = asyncio.Event()
    loop.add_writer(descriptor, some.set)
    try:
        await some.wait()
    finally:
        loop.remove_writer(descriptor)
