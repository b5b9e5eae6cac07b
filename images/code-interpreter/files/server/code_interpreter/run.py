"""One run of code, between the context that carries it out and the client that reads its output."""

import asyncio

# How many lines wait for a slow client before the code does.
LINES_MAX = 8


class Run:
    """A run of `code`, with `variables` of its own.

    The context puts lines and finishes the run; the client takes them, or leaves.
    """

    def __init__(self, code, variables):
        self.code = code
        self.variables = variables
        # Done when the client has left.
        self.left = asyncio.get_running_loop().create_future()
        # Set when the context restarts or is removed during the run.
        self.cut = False
        self._lines = asyncio.Queue(LINES_MAX)

    async def put(self, line):
        """Hands a line to the client, and waits as long as it is slow. Without a client, the line is dropped."""
        if not self.left.done():
            await self._lines.put(line)

    async def take(self):
        """The next lines, at least one; the last of all is `None`."""
        lines = [await self._lines.get()]
        while not self._lines.empty():
            lines.append(self._lines.get_nowait())
        return lines

    async def finish(self):
        await self.put(None)

    def leave(self):
        """The client has left, or has had its last line."""
        if not self.left.done():
            self.left.set_result(None)
        while not self._lines.empty():
            self._lines.get_nowait()
