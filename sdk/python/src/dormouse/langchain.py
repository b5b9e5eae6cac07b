"""Tools of a sandbox for LangChain. Needs the extra `dormouse-sandbox[langchain]`."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from ._async.tools import AsyncToolbox
from ._sync.tools import Toolbox
from ._tools import TOOLS, Tool
from .errors import DormouseError
from .tools import ToolError


def sandbox_tools(toolbox: Toolbox | AsyncToolbox) -> list[BaseTool]:
    """Return the tools of a sandbox. Errors are results, so that the model can react to them.

    Those of a `Toolbox` are called with `invoke`, those of an `AsyncToolbox` with `ainvoke`.
    """
    return [_adapt(tool, toolbox) for tool in TOOLS]


def _adapt(tool: Tool, toolbox: Toolbox | AsyncToolbox) -> BaseTool:
    def run(**arguments: Any) -> str:
        if not isinstance(toolbox, Toolbox):
            raise TypeError("the tools of an AsyncToolbox are called with ainvoke")
        try:
            return toolbox.run(tool.name, arguments)
        except (ToolError, DormouseError) as error:
            return f"Error: {error}"

    async def run_async(**arguments: Any) -> str:
        if not isinstance(toolbox, AsyncToolbox):
            raise TypeError("the tools of a Toolbox are called with invoke")
        try:
            return await toolbox.run(tool.name, arguments)
        except (ToolError, DormouseError) as error:
            return f"Error: {error}"

    return StructuredTool.from_function(
        func=run if isinstance(toolbox, Toolbox) else None,
        coroutine=run_async if isinstance(toolbox, AsyncToolbox) else None,
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.parameters),
    )
