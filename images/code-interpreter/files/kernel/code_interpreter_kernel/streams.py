"""Standard output and error of a kernel, with what other programs write to them."""

import codecs
import fcntl
import os
import select
import threading

from ipykernel.iostream import OutStream

PIECE = 1 << 20
# The most that is kept for a reader that is slow, in characters. Then the code waits.
KEPT_MAX = 4 << 20


class Stream(OutStream):
    """A stream that also takes in what arrives on the descriptor.

    A thread reads the pipe behind the descriptor. At the end of a run that thread may be late, so the run takes in the
    rest itself.
    """

    def __init__(self, *arguments, **options):
        self._kept = 0
        self._taking = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(*arguments, **options)

    def write(self, string):
        written = super().write(string)
        self._kept += written
        if self._kept > KEPT_MAX:
            self.flush()
        return written

    def flush(self):
        """Waits until everything is on its way. If there is nothing, no other thread is asked."""
        if self._kept:
            self._kept = 0
            super().flush()

    def take(self):
        """Takes in what is in the pipe now."""
        descriptor = getattr(self, "_fid", None)
        if descriptor is None:
            return
        with self._taking:
            while True:
                try:
                    piece = os.read(descriptor, PIECE)
                except OSError:
                    # There is nothing now, or the stream is closed.
                    return
                if not piece:
                    return
                self.write(self._decoder.decode(piece))

    def _watch_pipe_fd(self):
        flags = fcntl.fcntl(self._fid, fcntl.F_GETFL)
        fcntl.fcntl(self._fid, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        while self._should_watch:
            poll.poll()
            self.take()
