"""The variables of the sandbox.

This server is part of memory snapshots, and the sandboxes that continue from one have variables of their own. The agent
of the sandbox runs the hook `variables-hook` with them whenever a run begins or continues, before any request arrives.
The hook writes them into a FIFO that this server reads. They are never in a file: a FIFO is in no snapshot of files.

The connections of clients do not survive that, but this side of them does: a write would wait for a client that is gone. So
the objects that hold connections are called as well, and drop them.

Without an agent, the variables are those with which this server was started.
"""

import os
import stat

# Those of the hook itself, or of the user who runs it.
NOT_OURS = {
    "DORMOUSE_GENERATION",
    "DORMOUSE_PROCESS",
    "HOME",
    "LOGNAME",
    "OLDPWD",
    "PWD",
    "SHELL",
    "SHLVL",
    "USER",
    "_",
}
# More than this without an end was written by something else.
BYTES_MAX = 4 << 20
PIECE = 64 << 10


class Variables:
    """The variables of the sandbox as the agent has told them last."""

    def __init__(self, fifo=None):
        self.now = of_sandbox(os.environ)
        # Called when the sandbox has continued.
        self.continued = lambda: None
        self._unfinished = b""
        self._descriptor = opened(fifo) if fifo else None

    def watch(self, loop):
        """Reads the FIFO whenever something is in it, so that the hook never waits for a request."""
        if self._descriptor is not None:
            loop.add_reader(self._descriptor, self.refresh)

    def refresh(self):
        """Takes in what the hook has written; a run calls it first, since its turn may come before the loop's."""
        if self._descriptor is None:
            return
        while True:
            try:
                piece = os.read(self._descriptor, PIECE)
            except BlockingIOError:
                break
            if not piece:
                break
            self._unfinished += piece
        # Each list is variables that end with a zero byte, and one more at its end.
        *whole, rest = self._unfinished.split(b"\0\0")
        self._unfinished = rest if len(rest) <= BYTES_MAX else b""
        if whole:
            self.continued()
            pairs = (entry.split(b"=", 1) for entry in whole[-1].split(b"\0") if b"=" in entry)
            self.now = of_sandbox({os.fsdecode(name): os.fsdecode(value) for name, value in pairs})


def of_sandbox(variables):
    """The variables that code gets: the sandbox's own, and those by which E2B's clients know a sandbox."""
    own = {name: value for name, value in variables.items() if name not in NOT_OURS and "\0" not in name + value}
    sandbox = own.get("DORMOUSE_SANDBOX")
    if sandbox is not None:
        own.setdefault("E2B_SANDBOX", "true")
        own.setdefault("E2B_SANDBOX_ID", sandbox)
    return own


def opened(path):
    """Opens the FIFO for reading and writing, so that it has a reader and no end as long as this server lives."""
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            os.unlink(path)
            os.mkfifo(path, 0o600)
    except FileNotFoundError:
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
