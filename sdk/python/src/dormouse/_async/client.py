"""The client of a daemon."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from types import TracebackType

from .. import _operations as ops
from .._config import Config
from .._values import Duration
from ..types import Diff, DiffOrder, Event, Health, Info, TreeNode
from ._opening import opens_stream
from ._transport import AsyncTransport
from .artifacts import AsyncBuilds, AsyncImages, AsyncSnapshots
from .daemon import AsyncDaemon
from .environments import AsyncEnvironments
from .events import follow_events, list_events
from .resources import (
    AsyncKeys,
    AsyncOperations,
    AsyncPools,
    AsyncProjects,
    AsyncSecrets,
    AsyncTemplates,
    AsyncVolumes,
    AsyncWebhooks,
)
from .sandbox import AsyncSandboxes
from .stream import AsyncStream


class AsyncClient:
    """A client of one Dormouse daemon, for one project.

    Close it, or use it as a context manager. Sandboxes are not affected by that.
    """

    sandboxes: AsyncSandboxes
    """Sandboxes: create, connect to, and list them."""
    environments: AsyncEnvironments
    """Environments: get the sandbox of a key, whatever state it is in."""
    snapshots: AsyncSnapshots
    """Snapshots of sandboxes."""
    images: AsyncImages
    """Images that sandboxes boot from."""
    builds: AsyncBuilds
    """Builds of images and templates."""
    templates: AsyncTemplates
    """Names for images and snapshots with settings."""
    pools: AsyncPools
    """Sandboxes that are made in advance."""
    volumes: AsyncVolumes
    """Storage that outlives sandboxes."""
    secrets: AsyncSecrets
    """Values that are added to HTTPS requests outside of sandboxes."""
    keys: AsyncKeys
    """API keys."""
    projects: AsyncProjects
    """Projects, which separate users."""
    webhooks: AsyncWebhooks
    """Receivers of events."""
    operations: AsyncOperations
    """Commands in progress."""
    daemon: AsyncDaemon
    """The daemon itself."""

    def __init__(
        self,
        server: str | None = None,
        api_key: str | None = None,
        *,
        project: str | None = None,
        ca: str | os.PathLike[str] | None = None,
        timeout: Duration | None = 600.0,
        retries: int = 5,
        reconnect: Duration = 60.0,
    ) -> None:
        """Create a client. No request is sent.

        Args:
            server: `http://` or `https://` with a host, or `unix:` with the path of the socket
                `api.sock` in the daemon's data directory. Default: the environment variable
                `DORM_SERVER`, or `http://127.0.0.1:7070`.
            api_key: The API key. Default: `DORM_KEY`, or none for the socket, which needs none.
            project: The project, for keys of the project `local`. Default: that of the key.
            ca: A file with certificate authorities to trust besides those of this host, such as
                the output of `dorm ca`. Default: `DORM_CA`.
            timeout: Longest time for which the daemon may send nothing in a response. It does not
                apply to waits for processes, operations and builds. None for any time.
            retries: How often a request is sent again if the daemon cannot be reached, if the
                connection is lost, or if it asks for that; with growing pauses, 0.25 to 4 seconds.
                Only requests that are safe to repeat are.
            reconnect: For how long a stream whose connection is lost tries to continue where it
                was, such as while the daemon restarts. That includes the output of `exec`.
        """
        self._transport = AsyncTransport(
            Config.new(server, api_key, project, ca, timeout, retries, reconnect)
        )
        self.sandboxes = AsyncSandboxes(self._transport)
        self.environments = AsyncEnvironments(self._transport)
        self.snapshots = AsyncSnapshots(self._transport)
        self.images = AsyncImages(self._transport)
        self.builds = AsyncBuilds(self._transport)
        self.templates = AsyncTemplates(self._transport)
        self.pools = AsyncPools(self._transport)
        self.volumes = AsyncVolumes(self._transport)
        self.secrets = AsyncSecrets(self._transport)
        self.keys = AsyncKeys(self._transport)
        self.projects = AsyncProjects(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)
        self.operations = AsyncOperations(self._transport)
        self.daemon = AsyncDaemon(self._transport)

    async def health(self) -> Health:
        """Check that the daemon responds. This needs no key."""
        return await self._transport.json(ops.GET_HEALTH(), Health)

    async def info(self) -> Info:
        """Return the version of the daemon, its engine, and the project of the key."""
        return await self._transport.json(ops.GET_INFO(), Info)

    def events(
        self,
        *,
        sandbox: str | None = None,
        after: int | None = None,
        newest: int | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the events that have happened, ordered by number.

        Args:
            sandbox: Only events of this sandbox.
            after: Only events after the one with this number. Default: from the oldest on.
            newest: Only this many of the newest events, 1,000 at most.
            limit: Number of events in one response.
        """
        return list_events(self._transport, sandbox=sandbox, after=after, newest=newest, limit=limit)

    @opens_stream
    async def follow_events(
        self, *, sandbox: str | None = None, after: int | None = None
    ) -> AsyncStream[Event]:
        """Stream events as they happen, without an end. It continues after a lost connection.

        Args:
            sandbox: Only events of this sandbox.
            after: Begin after the event with this number. Default: with the oldest event.
        """
        return await follow_events(self._transport, sandbox=sandbox, after=after)

    async def diff(self, source: str, target: str, *, order: DiffOrder | None = None) -> Diff:
        """Compare the files of two snapshots or sandboxes. Both must be based on the same image.

        Args:
            source: ID of a snapshot, or ID or name of a sandbox.
            target: The other side, likewise.
            order: With `time`, the default, the comparison goes from the older side to the newer;
                with `given`, from `source` to `target`.
        """
        query = {"from": source, "to": target, "order": order}
        return await self._transport.json(ops.DIFF_FILES(query=query), Diff)

    async def tree(self, *, sandbox: str | None = None, all: bool | None = None) -> list[TreeNode]:
        """Return the lineage of sandboxes and snapshots.

        Args:
            sandbox: Only the tree that contains this sandbox.
            all: Also terminated sandboxes and deleted snapshots without living descendants.
        """
        query = {"sandbox": sandbox, "all": all}
        return await self._transport.items(ops.GET_TREE(query=query), "nodes", TreeNode)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
