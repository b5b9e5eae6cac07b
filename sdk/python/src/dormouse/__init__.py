"""Dormouse: sandboxes for AI agents that suspend with their memory and resume under the same id.

    from dormouse import Client

    with Client() as client, client.sandboxes.create("base") as sandbox:
        print(sandbox.exec("uname -a", check=True).stdout)

`Client` blocks, `AsyncClient` has the same methods for `asyncio`. Types of results are in
`dormouse.types`, errors in `dormouse.errors`, and tools for models in `dormouse.tools`.
"""

from ._async.artifacts import AsyncBuilds, AsyncImages, AsyncSnapshots
from ._async.client import AsyncClient
from ._async.daemon import AsyncDaemon
from ._async.ensured import AsyncEnsured, AsyncEnsureEvent
from ._async.environments import AsyncEnvironmentRun, AsyncEnvironments
from ._async.files import AsyncFiles
from ._async.ports import AsyncPort, AsyncPorts
from ._async.process import AsyncProcess, AsyncProcesses
from ._async.resources import (
    AsyncKeys,
    AsyncOperations,
    AsyncPools,
    AsyncProjects,
    AsyncSecrets,
    AsyncTemplates,
    AsyncVolumes,
    AsyncWebhooks,
)
from ._async.sandbox import AsyncSandbox, AsyncSandboxes
from ._async.services import AsyncServices
from ._async.stream import AsyncStream
from ._async.terminal import AsyncTerminal
from ._async.watchers import AsyncWatchers
from ._environments import EnsureParameters, WaysConsidered, parallel
from ._process import ExecResult, Exit, Lost, Output, Position, ProcessEvent
from ._sync.artifacts import Builds, Images, Snapshots
from ._sync.client import Client
from ._sync.daemon import Daemon
from ._sync.ensured import Ensured, EnsureEvent
from ._sync.environments import EnvironmentRun, Environments
from ._sync.files import Files
from ._sync.handle import OnExit
from ._sync.ports import Port, Ports
from ._sync.process import Process, Processes
from ._sync.resources import (
    Keys,
    Operations,
    Pools,
    Projects,
    Secrets,
    Templates,
    Volumes,
    Webhooks,
)
from ._sync.sandbox import Sandbox, Sandboxes
from ._sync.services import Services
from ._sync.stream import Stream
from ._sync.terminal import Terminal
from ._sync.watchers import Watchers
from ._values import Duration, Path, Size
from .errors import ApiError, CommandError, DormouseError, PartialForkError, SetupError, TransportError

__all__ = [
    "ApiError",
    "AsyncBuilds",
    "AsyncClient",
    "AsyncDaemon",
    "AsyncEnsureEvent",
    "AsyncEnsured",
    "AsyncEnvironmentRun",
    "AsyncEnvironments",
    "AsyncFiles",
    "AsyncImages",
    "AsyncKeys",
    "AsyncOperations",
    "AsyncPools",
    "AsyncPort",
    "AsyncPorts",
    "AsyncProcess",
    "AsyncProcesses",
    "AsyncProjects",
    "AsyncSandbox",
    "AsyncSandboxes",
    "AsyncSecrets",
    "AsyncServices",
    "AsyncSnapshots",
    "AsyncStream",
    "AsyncTemplates",
    "AsyncTerminal",
    "AsyncVolumes",
    "AsyncWatchers",
    "AsyncWebhooks",
    "Builds",
    "Client",
    "CommandError",
    "Daemon",
    "DormouseError",
    "Duration",
    "EnsureEvent",
    "EnsureParameters",
    "Ensured",
    "EnvironmentRun",
    "Environments",
    "ExecResult",
    "Exit",
    "Files",
    "Images",
    "Keys",
    "Lost",
    "OnExit",
    "Operations",
    "Output",
    "PartialForkError",
    "Path",
    "Pools",
    "Port",
    "Ports",
    "Position",
    "Process",
    "ProcessEvent",
    "Processes",
    "Projects",
    "Sandbox",
    "Sandboxes",
    "Secrets",
    "Services",
    "SetupError",
    "Size",
    "Snapshots",
    "Stream",
    "Templates",
    "Terminal",
    "TransportError",
    "Volumes",
    "Watchers",
    "WaysConsidered",
    "Webhooks",
    "parallel",
]
