"""Tools for models that work in a sandbox: exec, read, write, edit, checkpoint and rewind.

`Toolbox(sandbox)` has their definitions in the formats of Anthropic and OpenAI, and runs their calls.
"""

from ._async.tools import AsyncToolbox
from ._sync.tools import Toolbox
from ._tools import TOOLS, Tool, ToolError

__all__ = ["TOOLS", "AsyncToolbox", "Tool", "ToolError", "Toolbox"]
