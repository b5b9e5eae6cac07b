# Generated from _async/resources.py by scripts/generate_sync.py; do not edit.
"""Volumes, secrets, keys, webhooks, projects, pools, templates and operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import _operations as ops
from .._values import Duration, Size, seconds, size
from ..types import (
    CreatedKey,
    Egress,
    Key,
    KeyForm,
    KeyScope,
    OnTimeout,
    Operation,
    Pool,
    PortAccess,
    Project,
    ProjectBudgets,
    ProjectSecret,
    ResourcesRequest,
    SandboxInfo,
    Template,
    Volume,
    VolumeFile,
    Wake,
    Webhook,
    Writers,
)
from ._io import Content
from ._opening import opens
from ._transport import Transport
from .handle import OnExit
from .sandbox import Sandbox


class Resource:
    """A kind of object of the daemon."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Volumes(Resource):
    """Volumes: storage that outlives sandboxes."""

    def create(
        self,
        name: str,
        *,
        size_limit: Size | None = None,
        writers: Writers | None = None,
        idempotency_key: str | None = None,
    ) -> Volume:
        """Create a volume.

        Args:
            name: A unique name: 1 to 63 lower-case letters, digits and hyphens.
            size_limit: How much it holds, in bytes or as a text such as `"10G"`. Default: 1 GiB.
            writers: How many sandboxes may write at the same time: `one`, the default, or `many`.
            idempotency_key: A unique text; a repeated call with it makes no second volume.
        """
        body = {"name": name, "size_bytes": size(size_limit), "writers": writers}
        headers = {"Idempotency-Key": idempotency_key}
        return self._transport.json(ops.CREATE_VOLUME(body=body, headers=headers), Volume)

    def get(self, volume: str) -> Volume:
        """Return a volume by its id or name."""
        return self._transport.json(ops.GET_VOLUME(volume), Volume)

    def list(self, *, limit: int | None = None) -> Iterator[Volume]:
        """Yield all volumes, ordered by name. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_VOLUMES(query={"limit": limit}), "volumes", Volume)

    def delete(self, volume: str) -> None:
        """Delete a volume and its contents. Fails while it is attached to a living sandbox."""
        self._transport.send(ops.DELETE_VOLUME(volume))

    def read(self, volume: str, path: str) -> bytes:
        """Return the contents of a file. The path is relative to the root of the volume."""
        return (self._transport.send(ops.READ_VOLUME_FILE(volume, query={"path": path}))).content

    def write(self, volume: str, path: str, content: Content) -> None:
        """Write a file: text, bytes, an open file, or pieces of bytes. It is replaced atomically."""
        request = ops.WRITE_VOLUME_FILE(volume, query={"path": path}, content=content)
        self._transport.send(request)

    def files(self, volume: str, path: str = "") -> Sequence[VolumeFile]:
        """Return the entries of a directory. The path is relative to the root of the volume."""
        request = ops.LIST_VOLUME_FILES(volume, query={"path": path})
        return self._transport.items(request, "entries", VolumeFile)


class Secrets(Resource):
    """Secrets of a project, which header rules of the egress policy add to HTTPS requests."""

    def set(self, secret: str, value: str) -> ProjectSecret:
        """Set a secret. Its value is never returned; the next request uses it."""
        return self._transport.json(ops.SET_SECRET(secret, body={"value": value}), ProjectSecret)

    def get(self, secret: str) -> ProjectSecret:
        """Return a secret, without its value."""
        return self._transport.json(ops.GET_SECRET(secret), ProjectSecret)

    def list(self, *, limit: int | None = None) -> Iterator[ProjectSecret]:
        """Yield all secrets, without their values. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_SECRETS(query={"limit": limit}), "secrets", ProjectSecret)

    def delete(self, secret: str) -> None:
        """Remove a secret. Requests to which a rule would add it are refused from then on."""
        self._transport.send(ops.DELETE_SECRET(secret))


class Keys(Resource):
    """API keys."""

    def create(
        self,
        name: str | None = None,
        *,
        scope: KeyScope | None = None,
        sandbox: str | None = None,
        lifetime: Duration | None = None,
        form: KeyForm | None = None,
    ) -> CreatedKey:
        """Create a key. The result has the key, which is not shown again.

        Args:
            name: A name for people.
            scope: `full`, the default, `read_only`, or `sandbox` for one sandbox alone.
            sandbox: The sandbox, if that is the scope.
            lifetime: Time after which the key expires. Default: never.
            form: `e2b` for clients that accept only such keys.
        """
        body = {
            "name": name,
            "scope": scope,
            "sandbox": sandbox,
            "lifetime_secs": seconds(lifetime),
            "form": form,
        }
        return self._transport.json(ops.CREATE_KEY(body=body), CreatedKey)

    def list(self, *, limit: int | None = None) -> Iterator[Key]:
        """Yield all keys that are not revoked, the oldest first. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_KEYS(query={"limit": limit}), "keys", Key)

    def delete(self, key: str) -> None:
        """Revoke a key by its id. Revoking a key that does not exist succeeds."""
        self._transport.send(ops.DELETE_KEY(key))


class Webhooks(Resource):
    """Webhooks, which receive the events of a project."""

    def create(
        self,
        url: str,
        *,
        kinds: Sequence[str] | None = None,
        after: int | None = None,
        idempotency_key: str | None = None,
    ) -> Webhook:
        """Send events to a URL, in order and signed, until each is accepted.

        Args:
            url: The receiver. It begins with `http://`.
            kinds: Kinds of events. Default: all.
            after: Begin after the event with this number. Default: with events from now on.
            idempotency_key: A unique text; a repeated call with it makes no second webhook.

        Returns:
            The webhook, with its signing `secret`, which is not shown again.
        """
        headers = {"Idempotency-Key": idempotency_key}
        body = {"url": url, "kinds": kinds, "after": after}
        return self._transport.json(ops.CREATE_WEBHOOK(body=body, headers=headers), Webhook)

    def list(self, *, limit: int | None = None) -> Iterator[Webhook]:
        """Yield all webhooks, without their secrets. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_WEBHOOKS(query={"limit": limit}), "webhooks", Webhook)

    def replay(self, webhook: str, after: int) -> Webhook:
        """Send all events after the one with this number again."""
        return self._transport.json(ops.REPLAY_WEBHOOK(webhook, body={"after": after}), Webhook)

    def delete(self, webhook: str) -> None:
        """Delete a webhook. Deleting a webhook that does not exist succeeds."""
        self._transport.send(ops.DELETE_WEBHOOK(webhook))


class Projects(Resource):
    """Projects, which separate the users of a daemon. Only keys of the project `local` see them."""

    def create(self, name: str, *, budgets: ProjectBudgets | None = None) -> Project:
        """Create a project. Creating one that exists with the same limits succeeds.

        Args:
            name: A name. It is not used again when the project is removed.
            budgets: Limits of what its sandboxes use together. Default: none.
        """
        body = {"name": name, "budgets": budgets}
        return self._transport.json(ops.CREATE_PROJECT(body=body), Project)

    def get(self, project: str) -> Project:
        """Return a project, with what it uses of its limits."""
        return self._transport.json(ops.GET_PROJECT(project), Project)

    def list(self, *, limit: int | None = None) -> Iterator[Project]:
        """Yield all projects, ordered by name. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_PROJECTS(query={"limit": limit}), "projects", Project)

    def set_budgets(
        self,
        project: str,
        *,
        sandboxes: int | None = None,
        running: int | None = None,
        cpu_millis: int | None = None,
        memory: Size | None = None,
        disk: Size | None = None,
    ) -> Project:
        """Replace the limits of a project. A limit that is left out is removed.

        Args:
            project: The project.
            sandboxes: Number of sandboxes.
            running: Number of running sandboxes.
            cpu_millis: Thousandths of a CPU of running sandboxes together.
            memory: Memory of running sandboxes together.
            disk: Disk of all sandboxes together.
        """
        body = {
            "sandboxes": sandboxes,
            "running": running,
            "cpu_millis": cpu_millis,
            "memory_bytes": size(memory),
            "disk_bytes": size(disk),
        }
        return self._transport.json(ops.SET_PROJECT_BUDGETS(project, body=body), Project)

    def delete(self, project: str) -> None:
        """Remove a project with its keys and webhooks. Fails while it has anything else."""
        self._transport.send(ops.DELETE_PROJECT(project))


class Pools(Resource):
    """Pools of sandboxes that are made in advance."""

    def create(
        self,
        name: str,
        *,
        image: str | None = None,
        snapshot: str | None = None,
        ready: int | None = None,
        most: int | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        resources: ResourcesRequest | None = None,
        egress: Egress | None = None,
        port_access: PortAccess | None = None,
        start: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Pool:
        """Create a pool from an image or a snapshot: exactly one of them is given.

        Args:
            name: A unique name.
            image: A tag or a digest, or the name of a snapshot.
            snapshot: ID of a snapshot.
            ready: How many sandboxes wait to be claimed, at most 1000. Default: 0.
            most: How many may exist, waiting and claimed. Default: any number.
            env: Variables of every process.
            labels: Labels of the sandboxes.
            resources: Limits of the sandboxes.
            egress: Where they may connect to.
            port_access: Who can reach their ports.
            start: Start the entrypoint of the image in each, and wait until it is ready.
            idempotency_key: A unique text; a repeated call with it makes no second pool.
        """
        body = {
            "name": name,
            "image": image,
            "snapshot": snapshot,
            "ready": ready,
            "most": most,
            "env": env,
            "labels": labels,
            "resources": resources,
            "egress": egress,
            "port_access": port_access,
            "start": start,
        }
        headers = {"Idempotency-Key": idempotency_key}
        return self._transport.json(ops.CREATE_POOL(body=body, headers=headers), Pool)

    def get(self, pool: str) -> Pool:
        """Return a pool by its id or name."""
        return self._transport.json(ops.GET_POOL(pool), Pool)

    def list(self, *, limit: int | None = None) -> Iterator[Pool]:
        """Yield all pools, ordered by name. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_POOLS(query={"limit": limit}), "pools", Pool)

    def resize(self, pool: str, ready: int, *, most: int | None = None) -> Pool:
        """Change the size of a pool. Surplus sandboxes that wait are terminated.

        Args:
            pool: The pool.
            ready: How many sandboxes wait to be claimed, at most 1000.
            most: How many may exist, waiting and claimed. Default: any number.
        """
        return self._transport.json(ops.RESIZE_POOL(pool, body={"ready": ready, "most": most}), Pool)

    @opens
    def claim(
        self,
        pool: str,
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        idle_timeout: Duration | None = None,
        max_run: Duration | None = None,
        on_timeout: OnTimeout | None = None,
        port_access: PortAccess | None = None,
        wake: Wake | None = None,
        max_wait: Duration | None = None,
        idempotency_key: str | None = None,
        on_exit: OnExit = "terminate",
    ) -> Sandbox:
        """Take a sandbox out of a pool. It is a sandbox like any other from then on.

        Args:
            pool: The pool.
            name: A unique name for the sandbox.
            env: Variables of processes that start from then on, in addition to those of the pool.
            labels: Labels, in addition to those of the pool.
            timeout: Time from the start of a run to its deadline. Default: none.
            idle_timeout: Time from the last activity to the deadline. Default: none.
            max_run: Longest time that a run may last. Default: none.
            on_timeout: Action at a deadline.
            port_access: Who can reach its ports. Default: as for the pool.
            wake: Calls that resume the sandbox when it is suspended. Default: `traffic`.
            max_wait: How long to wait until a sandbox is ready. Default: not at all.
            idempotency_key: A unique text; a repeated call with it claims no second sandbox.
            on_exit: Action at the end of a `with`: `terminate`, `suspend` or `leave`.
        """
        body = {
            "name": name,
            "env": env,
            "labels": labels,
            "timeout_secs": seconds(timeout),
            "idle_timeout_secs": seconds(idle_timeout),
            "max_run_secs": seconds(max_run),
            "on_timeout": on_timeout,
            "port_access": port_access,
            "wake": wake,
            "max_wait_secs": seconds(max_wait),
        }
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.CLAIM_SANDBOX(pool, body=body, headers=headers)
        info = self._transport.json(request, SandboxInfo)
        return Sandbox(self._transport, info, on_exit=on_exit)

    def delete(self, pool: str) -> None:
        """Remove a pool. Sandboxes that wait are terminated, claimed ones stay."""
        self._transport.send(ops.DELETE_POOL(pool))


class Templates(Resource):
    """Templates: names with tags, each of which stands for an image or a snapshot with settings."""

    def create(
        self,
        name: str,
        *,
        image: str | None = None,
        snapshot: str | None = None,
        tags: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        resources: ResourcesRequest | None = None,
        start: bool | None = None,
    ) -> Template:
        """Let tags of a template stand for an image or a snapshot. Tags that exist are moved.

        Args:
            name: A name. The template is created if it is missing.
            image: A tag or a digest, or the name of a snapshot.
            snapshot: ID of a snapshot.
            tags: The tags. Default: `latest`.
            env: Variables of every process of its sandboxes.
            resources: Limits of its sandboxes.
            start: Start the entrypoint of the image in each, and wait until it is ready.
        """
        body = {
            "name": name,
            "image": image,
            "snapshot": snapshot,
            "tags": tags,
            "env": env,
            "resources": resources,
            "start": start,
        }
        return self._transport.json(ops.CREATE_TEMPLATE(body=body), Template)

    def get(self, template: str) -> Template:
        """Return a template by its id or name."""
        return self._transport.json(ops.GET_TEMPLATE(template), Template)

    def list(self, *, limit: int | None = None) -> Iterator[Template]:
        """Yield all templates, ordered by name. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_TEMPLATES(query={"limit": limit}), "templates", Template)

    def tag(self, template: str, tags: Sequence[str], *, source: str | None = None) -> Template:
        """Let further tags stand for what a tag stands for.

        Args:
            template: The template.
            tags: The tags. They are moved if they exist.
            source: The tag to start from. Default: `latest`.
        """
        body = {"from": source, "tags": tags}
        return self._transport.json(ops.TAG_TEMPLATE(template, body=body), Template)

    def delete(self, template: str, *, tag: str | None = None) -> None:
        """Delete a template, or only a tag of it. Sandboxes are not affected."""
        self._transport.send(ops.DELETE_TEMPLATE(template, query={"tag": tag}))


class Operations(Resource):
    """Operations: durable records of commands in progress."""

    def get(self, operation: str, *, wait: Duration | None = None) -> Operation:
        """Return an operation.

        Args:
            operation: The id of the operation.
            wait: How long to wait for its end, at most 600 seconds. Default: not at all.
        """
        query = {"wait_secs": seconds(wait)}
        request = ops.GET_OPERATION(operation, query=query, waits=wait is not None)
        return self._transport.json(request, Operation)

    def list(self, *, sandbox: str | None = None, limit: int | None = None) -> Iterator[Operation]:
        """Yield operations, the newest first.

        Args:
            sandbox: Only operations on this sandbox.
            limit: Number of operations in one response.
        """
        query = {"sandbox": sandbox, "limit": limit}
        return self._transport.pages(ops.LIST_OPERATIONS(query=query), "operations", Operation)
