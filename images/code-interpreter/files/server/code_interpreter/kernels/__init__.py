"""The programs that run code, by language."""

from .bash import BashKernel
from .node import NodeKernel
from .python import PythonKernel

LANGUAGES = {
    "python": PythonKernel,
    "javascript": NodeKernel,
    "typescript": NodeKernel,
    "bash": BashKernel,
}


def unavailable(language):
    """Says that there is no kernel for a language, and for which there is one."""
    return f"Language '{language}' is not available: this image has {', '.join(LANGUAGES)}"
