"""An IPython kernel that gives each run its variables and loses no output."""

import os
import random
import ssl
import subprocess
import sys

import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from traitlets import Type, default

from . import charts, images, tables


class Shell(ZMQInteractiveShell):
    def init_environment(self):
        """Programs write without colours: their output is not for a terminal."""
        os.environ.setdefault("PAGER", "cat")
        os.environ.setdefault("GIT_PAGER", "cat")

    def system_piped(self, cmd):
        """`!command` runs with the output of the kernel itself, not with a terminal of its own."""
        command = self.var_expand(cmd, depth=1)
        self.user_ns["_exit_code"] = subprocess.call(["bash", "-c", command], stdin=subprocess.DEVNULL)
        take_output()

    system = system_piped

    def ask_exit(self):
        """`exit()` ends the run, not the kernel with its variables."""
        raise SystemExit(0)


class Kernel(IPythonKernel):
    shell_class = Type(Shell)
    # Whether no code of a user has run yet.
    _is_unused = True
    # By default a kernel sleeps before each reply, in case output is late. `do_execute` has flushed all of it.
    _execute_sleep = 0

    def __init__(self, **options):
        super().__init__(**options)
        self.shell.colors = "nocolor"
        formatters = self.shell.display_formatter.formatters
        for formatter in (charts.Formatter(parent=self.shell), tables.Formatter(parent=self.shell)):
            formatters[formatter.format_type] = formatter
        charts.watch_imports()
        images.watch_imports()

    def _publish_status(self, status, channel, parent=None):
        """The server knows that the kernel is busy: it has asked. It needs to know when that ends."""
        if status != "busy":
            super()._publish_status(status, channel, parent)

    async def execute_request(self, stream, ident, parent):
        if self._is_unused and not parent["content"].get("silent"):
            self._is_unused = False
            reseed()
        metadata = parent.get("metadata") or {}
        assign(metadata.get("changes") or {})
        earlier = assign(metadata.get("variables") or {})
        try:
            await super().execute_request(stream, ident, parent)
        finally:
            assign(earlier)

    async def do_execute(self, *arguments, **options):
        try:
            return await super().do_execute(*arguments, **options)
        finally:
            take_output()


class App(IPKernelApp):
    kernel_class = Type(Kernel, klass="ipykernel.kernelbase.Kernel")

    @default("outstream_class")
    def _default_outstream_class(self):
        return "code_interpreter_kernel.streams.Stream"

    def initialize(self, argv=None):
        # A history on the disk is for the next session of a person.
        self.config.HistoryManager.enabled = False
        super().initialize(argv)
        # The logger would make a record of each message, and its handler would drop it.
        self.log.setLevel(self.log_level)

    def init_iopub(self, context):
        super().init_iopub(context)
        # A reader that is slow makes the code wait; by default, ZeroMQ would drop messages.
        self.iopub_thread.socket.setsockopt(zmq.XPUB_NODROP, 1)


def reseed():
    """Gives a kernel that has run no code yet its own random numbers: it may be in a memory snapshot."""
    random.seed()
    ssl.RAND_add(os.urandom(64), 64.0)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def take_output():
    """Takes in what programs have written, before the run continues or ends."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "take"):
            stream.take()


def assign(variables):
    """Sets environment variables, removes those that are `None`, and returns what they were before."""
    earlier = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return earlier
