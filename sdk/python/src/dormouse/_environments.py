"""Parameters and events of requests for environments, without input and output."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ._values import Duration, Size, millis, seconds, size
from .types import (
    Considered,
    Egress,
    EnvironmentLifecycle,
    EnvironmentSource,
    EnvironmentThread,
    GitSource,
    OnLeave,
    ParallelSetup,
    Pull,
    ResourcesRequest,
    SetupStep,
)


class EnsureParameters(TypedDict, total=False):
    """The parameters of a request for an environment, besides its key.

    Exactly one of `image`, `snapshot` and `template` is given.
    """

    image: str
    """A tag, a digest, or the name of an image in a registry or of a snapshot."""
    snapshot: str
    """ID of a snapshot to start from."""
    template: str
    """A template, `NAME` or `NAME:TAG`."""
    pull: Pull
    """When to contact a registry for the image. Default: `missing`."""
    source: GitSource | EnvironmentSource | str | os.PathLike[str]
    """The code: a git repository, or the path of a local directory, whose files are uploaded unless
    its `.dockerignore` excludes them."""
    directory: str
    """Directory of the code, in which the commands run. Default: `/workspace`."""
    user: str
    """Who runs the commands and owns the code. Default: the user of the image."""
    setup: Sequence[SetupStep]
    """Lines for `/bin/sh`, in order; `parallel` makes a step of lines that run at the same time."""
    start_command: str
    """A line for `/bin/sh` that is left running after the setup, and after each boot from files."""
    ready_command: str
    """A line for `/bin/sh` that exits with 0 once everything is ready. It is repeated until then."""
    step_timeout: Duration
    """Time limit of the clone, of each command and of the wait for `ready_command`. Default: 30
    minutes."""
    env: Mapping[str, str]
    """Variables of every process."""
    secrets: Mapping[str, str]
    """Secrets of the project for every process, by the name of their variable."""
    secret_values: Mapping[str, str]
    """Further secrets for every process, as values, which are stored encrypted."""
    labels: Mapping[str, str]
    """Labels of the sandbox."""
    cpus: float
    """Number of CPUs, such as 0.5."""
    memory: Size
    """Limit of memory, in bytes or as a text such as `"2G"`."""
    disk: Size
    """Limit of disk."""
    processes: int
    """Limit of the number of processes."""
    egress: Egress
    """Where the sandbox may connect to."""
    lifecycle: EnvironmentLifecycle
    """How the environment is found again, and what becomes of its sandbox."""
    client_key: str
    """Key of 16 hexadecimal digits under which another client library has made the environment."""
    on_leave: OnLeave
    """Rule for work in progress if no caller waits for it any more: `continue`, the
    default, or `cancel`."""


@dataclass(frozen=True)
class WaysConsidered:
    """The ways to a sandbox that the daemon has considered, in order."""

    ways: list[Considered]


def parallel(*commands: str) -> ParallelSetup:
    """Return a step of a setup whose commands run at the same time."""
    return ParallelSetup(parallel=list(commands))


def ensure_body(
    key: str | None,
    thread: EnvironmentThread | None,
    parameters: EnsureParameters,
    *,
    source: EnvironmentSource | None,
    lease: Duration | None = None,
) -> dict[str, Any]:
    """Return the body of a request for an environment."""
    unknown = parameters.keys() - EnsureParameters.__annotations__.keys()
    if unknown:
        raise TypeError(f"an environment has no parameter {', '.join(sorted(unknown))}")
    resources = ResourcesRequest(
        cpu_millis=millis(parameters.get("cpus")),
        memory_bytes=size(parameters.get("memory")),
        disk_bytes=size(parameters.get("disk")),
        processes=parameters.get("processes"),
    )
    return {
        "key": key,
        "thread": thread,
        "image": parameters.get("image"),
        "snapshot": parameters.get("snapshot"),
        "template": parameters.get("template"),
        "pull": parameters.get("pull"),
        "source": source,
        "directory": parameters.get("directory"),
        "user": parameters.get("user"),
        "setup": parameters.get("setup"),
        "start_command": parameters.get("start_command"),
        "ready_command": parameters.get("ready_command"),
        "step_timeout_secs": seconds(parameters.get("step_timeout")),
        "env": parameters.get("env"),
        "secrets": parameters.get("secrets"),
        "secret_values": parameters.get("secret_values"),
        "labels": parameters.get("labels"),
        "resources": None if resources == ResourcesRequest() else resources,
        "egress": parameters.get("egress"),
        "lifecycle": parameters.get("lifecycle"),
        "client_key": parameters.get("client_key"),
        "on_leave": parameters.get("on_leave"),
        "lease_secs": seconds(lease),
    }
