"""Starts the IPython kernel of a context. Its modules come after all others, so that they hide none of the user's."""

import ctypes
import os
import signal
import sys

# A kernel ends with its server, which nothing else could reach it by.
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path = [path for path in sys.path if os.path.realpath(path) != HERE] + [HERE]

from code_interpreter_kernel.app import App  # noqa: E402

App.launch_instance()
