"""Types of the API. Generated from docs/reference/openapi.json; do not edit.

Fields have their unit in their name, as in the API: `timeout_secs` is a number of seconds, and
`memory_bytes` a number of bytes. Paths and other texts of a sandbox that are not UTF-8 are strings
with surrogates, as in `os`: `os.fsencode` returns their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypedDict

from ._values import Duration, Size


AttemptState = Literal["running", "ready", "failed", "cancelled"]
"""Result of an attempt to make a sandbox."""


BuildLogStream = Literal["build", "stdout", "stderr"]
"""Origin of a line of a log."""


BuildState = Literal["reserved", "queued", "running", "succeeded", "failed", "cancelled"]
"""State of a build."""


BuildStepState = Literal["waiting", "running", "cached", "done", "failed"]
"""State of a step."""


CauseKind = Literal["requested", "timeout", "failed"]
"""Kind of the cause for which a sandbox was terminated."""


Credential = Literal["owner_socket", "owner_key", "api_key", "port_token", "port_link"]
"""Credential that admits a request."""


DiffChange = Literal["added", "removed", "modified"]
"""How a path changed."""


DiffOrder = Literal["time", "given"]
"""The side that a comparison starts from."""


class EgressAllow(TypedDict):
    """Only these IPv4 networks, such as `198.51.100.0/24`, and the public addresses of these host
    names: `example.com` for one name, `*.example.com` for every name below it, or `*` for every
    name. No other name resolves. A network that is not itself part of a private network stands
    for its public addresses only.
    """

    allow: list[str]
    """Only these IPv4 networks, such as `198.51.100.0/24`, and the public addresses of these host
    names: `example.com` for one name, `*.example.com` for every name below it, or `*` for every
    name. No other name resolves. A network that is not itself part of a private network stands
    for its public addresses only.
    """


class EgressOrdered(TypedDict):
    """Rules in their order."""

    ordered: EgressRules
    """Rules in their order."""


Egress = Literal["public", "closed", "none"] | EgressAllow | EgressOrdered
"""Where a sandbox may connect to.

- `public`: Public internet addresses, never private or link-local ones. Every name resolves.
- `closed`: Nowhere. No name resolves. Can be changed later, also while the sandbox runs.
- `none`: No network device. Can never be changed.
"""


EgressDefault = Literal["deny", "public"]
"""Decision about connections and names that no rule matches."""


EnsuredBy = Literal["live", "resumed", "restored", "created"]
"""The way on which a sandbox was had."""


EnvironmentLogStream = Literal["daemon", "stdout", "stderr"]
"""Origin of a line of a log."""


EnvironmentState = Literal["idle", "working", "ready", "ending"]
"""State of an environment."""


FileKind = Literal["file", "directory", "link", "other"]
"""Type of a file."""


FollowingVolumes = Literal["same", "read_only", "none"]
"""How the volumes of a sandbox are attached to its clones and forks."""


IfBusy = Literal["wait", "refuse"]
"""Action of a command while another operation on the sandbox is in progress."""


ImportStage = Literal["waiting", "fetching", "unpacking", "hashing", "syncing", "trying"]
"""Stage of a long operation."""


Keep = Literal["forever", "none"]
"""How long a snapshot is kept, other than for a number of seconds."""


Kept = Literal["memory", "files"]
"""The part of a sandbox that a suspend keeps."""


KeyForm = Literal["dormouse", "e2b"]
"""Form of an API key. Some clients accept only keys of their own form."""


KeyScope = Literal["full", "read_only", "sandbox"]
"""Scope of an API key: the requests that it permits."""


Maker = Literal["request", "policy", "import"]
"""Why a snapshot was made."""


OnBroken = Literal["refuse", "next"]
"""Action if a sandbox or snapshot exists and cannot be used."""


OnDrift = Literal["rebuild", "keep", "refuse"]
"""Action if the definition is not the one that was recorded."""


OnLeave = Literal["continue", "cancel"]
"""Rule for work in progress if no caller waits for it any more."""


OnPartialFailure = Literal["keep", "roll_back"]
"""Action if a child of a fork cannot be created."""


OnSuspendFailure = Literal["keep", "terminate"]
"""Action on a sandbox that cannot be suspended at its deadline. Attempts are repeated with
increasing intervals, up to 10 minutes.
"""


OnTimeout = Literal["terminate", "suspend", "suspend_files"]
"""Action on a running sandbox at a deadline."""


OnUnrestorable = Literal["fail", "filesystem", "fresh"]
"""Action if none of the sleep images of a sandbox can be restored."""


OperationStatus = Literal["in_progress", "completed", "failed"]
"""Status of an operation."""


OutputStream = Literal["stdout", "stderr"]
"""An output stream of a process."""


PortAccess = Literal["public", "private"]
"""Who can reach the ports of a sandbox through the gateway."""


Pull = Literal["always", "missing", "never"]
"""When a registry is contacted for an image."""


Residence = Literal["running", "parked", "evicted", "none"]
"""Where the memory of a sandbox is."""


Restart = Literal["never", "on_failure", "always"]
"""When the process of a service is started again."""


Restored = Literal["memory", "filesystem", "files", "none"]
"""State that the current or last run of a sandbox started with."""


Reuse = Literal["thread", "none"]
"""Whether an environment is used again."""


RunOutcome = Literal["completed", "failed"]
"""How a run has ended."""


SearchLimit = Literal["results", "entries", "bytes", "time", "size"]
"""Limit of a search."""


ServiceEventKind = Literal[
    "started",
    "not_started",
    "exited",
    "restarting",
    "gave_up",
    "finished",
    "healthy",
    "unhealthy",
    "stopped",
]
"""Kind of an event of a service."""


ServiceHealth = Literal["unknown", "starting", "healthy", "unhealthy"]
"""Health of the process of a service."""


ServiceState = Literal["running", "waiting", "stopping", "stopped", "finished", "failed"]
"""State of a service."""


SetupState = Literal["waiting", "running", "done", "failed"]
"""State of a step of a setup."""


SignalTarget = Literal["process", "group"]
"""Receiver of a signal."""


SnapshotKind = Literal["filesystem", "memory"]
"""Contents of a snapshot."""


SnapshotStatus = Literal["in_progress", "completed", "failed", "deleting"]
"""Status of a snapshot."""


SnapshotWhen = Literal["after_setup", "after_run", "none"]
"""When snapshots are taken without a request."""


State = Literal[
    "pending",
    "running",
    "snapshotting",
    "suspending",
    "suspended",
    "resuming",
    "terminating",
    "terminated",
]
"""Lifecycle state of a sandbox."""


TreeKind = Literal["sandbox", "snapshot"]
"""Kind of a node."""


Verdict = Literal["taken", "unavailable", "broken"]
"""Whether a way can be taken."""


VolumeFileKind = Literal["file", "directory", "symlink", "other"]
"""Type of a file on a volume."""


VolumeHealth = Literal["creating", "idle", "mounted", "broken", "deleting"]
"""Health of a volume."""


Wake = Literal["never", "traffic", "any"]
"""Calls that resume a suspended sandbox."""


WatchKind = Literal[
    "created",
    "modified",
    "attributes",
    "removed",
    "moved_from",
    "moved_to",
    "overflow",
]
"""Kind of a change to a file."""


Way = Literal["live", "resume", "own_snapshot", "workspace_snapshot", "create"]
"""A way to a sandbox. They are considered in this order."""


Writers = Literal["one", "many"]
"""How many sandboxes may write to a volume at the same time."""


@dataclass(frozen=True, kw_only=True)
class AttachVolume:
    """Attaches a volume to a sandbox."""

    path: str
    """Absolute path in the sandbox at which the volume appears."""

    read_only: bool | None = None
    """Attach the volume read-only. Default: false."""

    subpath: str | None = None
    """Directory of the volume to attach. It is created if it is missing, unless the volume is
    attached read-only. Default: the whole volume.
    """

    volume: str
    """Name or ID of the volume."""


@dataclass(frozen=True, kw_only=True)
class AttachedVolume:
    """A volume that is attached to a sandbox."""

    path: str
    """Path in the sandbox at which the volume appears."""

    read_only: bool
    """Whether the volume is attached read-only."""

    subpath: str | None = None
    """Attached directory of the volume. Null for the whole volume."""

    volume: str
    """ID of the volume."""


@dataclass(frozen=True, kw_only=True)
class AttemptFailure:
    """Why an attempt has failed."""

    code: str
    """Error code, as in a problem."""

    exit_code: int | None = None
    """Exit code of its command, if that exited."""

    kept: str | None = None
    """ID of the sandbox that is kept for inspection."""

    reason: str
    """The reason."""

    step: int | None = None
    """Position of the step that failed, starting at 0; null if it was not a step."""


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Certificate authority of the daemon's own hosts."""

    certificate: str
    """Its certificate, in PEM."""

    domains: list[str]
    """Domains that its certificates can be for, with their subdomains."""

    sha256: str
    """SHA-256 of the certificate in DER, as hexadecimal digits."""


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build."""

    base: str | None = None
    """Digest of the base image, once it is known."""

    began_at: datetime | None = None
    """When it began."""

    caller: Caller | None = None
    """Caller that requested it."""

    cancelling: bool
    """Whether its cancellation was requested."""

    created_at: datetime
    """When it was requested."""

    ended_at: datetime | None = None
    """When it ended."""

    failure: BuildFailure | None = None
    """Why it has failed."""

    id: str
    """ID."""

    image: str | None = None
    """Digest of the image."""

    project: str
    """Project."""

    snapshot: str | None = None
    """ID of the memory snapshot that sandboxes of the template start from."""

    state: BuildState
    """State."""

    step: int | None = None
    """Position of the step in progress, starting at 0."""

    steps: list[BuildStep]
    """Steps, once the base image is known."""

    tag: str | None = None
    """Tag for the image."""

    template: str | None = None
    """Name of the template that the result becomes."""

    template_tags: list[str]
    """Tags of that template that stand for the result."""


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """An uploaded build context."""

    bytes: int
    """Length of all its files."""

    entries: int
    """How many files, directories and links it has."""

    hash: str
    """The hash that its uploader named it by."""


@dataclass(frozen=True, kw_only=True)
class BuildCopy:
    """Files to copy."""

    from_: list[str]
    """Paths in the context; a directory stands for its content, and `*` for any name."""

    mode: str | None = None
    """Permission bits of files and directories in octal, such as `0755`. Default those in the
    context.
    """

    owner: str | None = None
    """Owner of what is created: `USER` or `USER:GROUP`, as names that the image lists or as
    numbers. Default root.
    """

    to: str
    """Destination. With a trailing slash, or with several sources, it is a directory."""


@dataclass(frozen=True, kw_only=True)
class BuildFailure:
    """Why a build has failed."""

    code: str
    """Error code, as in a problem."""

    exit_code: int | None = None
    """Exit code of its command, if that exited."""

    reason: str
    """The reason."""

    step: int | None = None
    """Position of the step that failed, starting at 0; null if it was not a step."""


@dataclass(frozen=True, kw_only=True)
class BuildLog:
    """Lines of the log of a build."""

    lines: list[BuildLogLine]
    """The lines, in order."""

    next_offset: int
    """Offset of the next line: send it as `offset`."""

    state: BuildState
    """State of the build. Nothing is added to the log of one that has ended."""


@dataclass(frozen=True, kw_only=True)
class BuildLogLine:
    """A line of the log of a build."""

    at: datetime
    """When it was written."""

    offset: int
    """Its offset in the log, starting at 0."""

    step: int | None = None
    """Position of the step, starting at 0; null if it concerns no step."""

    stream: BuildLogStream
    """Its origin."""

    text: str
    """The text, without the end of the line. Bytes that are not UTF-8 are replaced."""


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """A step of a build."""

    began_at: datetime | None = None
    """When it began."""

    ended_at: datetime | None = None
    """When it ended."""

    key: str | None = None
    """Key of its result; null if it changes no file."""

    line: int | None = None
    """Line in the Dockerfile, starting at 1."""

    snapshot: str | None = None
    """ID of the snapshot with its result."""

    state: BuildStepState
    """State."""

    title: str
    """The step as one line."""


@dataclass(frozen=True, kw_only=True)
class BuildStepRequest:
    """A step of a build: exactly one of the fields that name an instruction is set."""

    argv: list[str] | None = None
    """Run a program."""

    context: str | None = None
    """Hash of the uploaded context that this step copies from. Default: that of the build."""

    copy: BuildCopy | None = None
    """Copy files from the context."""

    env: dict[str, str] | None = None
    """Set variables for later steps and in the image."""

    force: bool | None = None
    """Run this step and those after it, even if their results are known."""

    run: str | None = None
    """Run a line with `/bin/sh`."""

    run_login: str | None = None
    """Run a line with a login shell: `bash`, or `sh` in an image without it."""

    user: str | None = None
    """Set the user of later steps and of the image."""

    workdir: str | None = None
    """Set the working directory of later steps and of the image."""


@dataclass(frozen=True, kw_only=True)
class BuildTemplate:
    """The template that the result of a build becomes. With a start or ready command, the program
    is started, and sandboxes of the template have it running.
    """

    env: dict[str, str] | None = None
    """Environment variables of every process in them. Their values are never returned."""

    name: str | None = None
    """Name, unique in the project."""

    resources: ResourcesRequest | None = None
    """Resource limits of its sandboxes."""

    tags: list[str] | None = None
    """Tags that stand for the result from the end of the build on. Default `latest`."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller that asked for a change, as it was then. It never changes afterwards: a key that
    was removed since is still named.
    """

    credential: Credential
    """Credential that admitted the request."""

    door: str
    """API through which the request came: `api` for this one."""

    key: str | None = None
    """ID of the API key, if the credential is `api_key`. It is not secret."""

    key_name: str | None = None
    """Name that the API key had. Empty for a key without a name."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a sandbox was terminated."""

    kind: CauseKind
    """Kind of the cause."""

    reason: str | None = None
    """Description of the failure, if the kind is `failed`."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The automatic checkpoint policy of a sandbox. Checkpoints are taken while the sandbox runs,
    if it was used since the last one.
    """

    every_secs: float
    """Seconds between two checkpoints."""

    keep: str
    """Retention rule for automatic snapshots. `3,24x1h,7x1d` keeps the newest three, the newest of
    each of the last 24 hours, and the newest of each of the last 7 days.
    """

    kind: SnapshotKind
    """Kind of the snapshots."""


@dataclass(frozen=True, kw_only=True)
class CheckpointsRequest:
    """An automatic checkpoint policy."""

    every_secs: Duration | None = None
    """Seconds between two checkpoints, 10 to 31,536,000. Required."""

    keep: str | None = None
    """Retention rule: a count of the newest snapshots, and counts of intervals with their length.
    Default `3,24x1h,7x1d`.
    """

    kind: SnapshotKind | None = None
    """Kind of the snapshots. Default `filesystem`."""


@dataclass(frozen=True, kw_only=True)
class CollectorItem:
    """An object on disk or a run, and what garbage collection does with it."""

    bytes: int
    """Size of the object in bytes; 0 if it is not known."""

    id: str
    """Name of the object."""

    kind: str
    """`image`, `saved_state` (the saved state of a sleep image or snapshot), `draft` (an incomplete
    saved state) or `run` (a run on the host that no record of this data directory names).
    """

    verdict: str
    """`kept`, `freed`, or `unknown` if no record names the object. Unknown objects are never
    deleted.
    """

    why: list[str]
    """The reasons, one entry for each record that refers to the object."""


@dataclass(frozen=True, kw_only=True)
class Considered:
    """A way that was considered."""

    reason: str | None = None
    """Why it is not taken."""

    verdict: Verdict
    """The result."""

    way: Way
    """The way."""


@dataclass(frozen=True, kw_only=True)
class CreatedKey:
    """A new API key."""

    created_at: datetime
    """When the key was created."""

    expires_at: datetime | None = None
    """When the key expires, if it does."""

    id: str
    """ID of the key. It is not secret."""

    name: str
    """Display name."""

    project: str | None = None
    """Project that the key gives access to."""

    sandbox: str | None = None
    """ID of the sandbox, if the scope is `sandbox`."""

    scope: KeyScope
    """Scope of the key."""

    key: str = field(repr=False)
    """The key itself. It is shown only once."""


@dataclass(frozen=True, kw_only=True)
class CurrentOperation:
    """The operation in progress. `GET /v1/operations/{id}` has more about it."""

    deadline: datetime
    """When the operation is aborted."""

    id: str
    """ID of the operation. Its events carry it."""


@dataclass(frozen=True, kw_only=True)
class DamagedFile:
    """A file whose contents are not what was written."""

    file: str
    """Path relative to the directory of the object."""

    what: str
    """The problem with the file, as a phrase with the file as its subject."""


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The paths that differ."""

    changes: list[DiffEntry]
    """The paths in order."""

    from_: str
    """ID of the snapshot or sandbox that the comparison starts from: the first side."""

    to: str
    """ID of the snapshot or sandbox that it goes to: the second side."""


@dataclass(frozen=True, kw_only=True)
class DiffEntry:
    """A path that differs."""

    after_bytes: int | None = None
    """Size on the second side. Only present for a file."""

    before_bytes: int | None = None
    """Size on the first side. Only present for a file."""

    change: DiffChange
    """How the path changed from the first side to the second."""

    path: str
    """The absolute path."""


@dataclass(frozen=True, kw_only=True)
class DiskIo:
    """Disk reads and writes of a sandbox since its current run started, and their limits."""

    operations_limit: int | None = None
    """Limit of reads per second, and of writes per second. Null for no limit."""

    read_bytes: int
    """Bytes read."""

    read_limit: int | None = None
    """Read limit in bytes per second. Null for no limit."""

    write_limit: int | None = None
    """Write limit in bytes per second. Null for no limit."""

    written_bytes: int
    """Bytes written. On a host with control groups version 1, delayed writes are not counted."""


class EgressRuleAllow(TypedDict):
    """Allows connections to the network, or to the public addresses that the name resolves to. A
    network that is not itself part of a private network stands for its public addresses only.
    """

    allow: str
    """Allows connections to the network, or to the public addresses that the name resolves to. A
    network that is not itself part of a private network stands for its public addresses only.
    """


class EgressRuleDeny(TypedDict):
    """Refuses connections to the network. A denied name does not resolve."""

    deny: str
    """Refuses connections to the network. A denied name does not resolve."""


EgressRule = EgressRuleAllow | EgressRuleDeny
"""A rule. Its text is an IPv4 network, such as `198.51.100.0/24`, or a host name: `example.com`,
`*.example.com` or `*`. The network `0.0.0.0/0` also stands for every name.
"""


class _EgressRules(TypedDict):
    rules: list[EgressRule]
    """The rules, 256 at most. A rule that can never match is refused."""


class EgressRules(_EgressRules, total=False):
    """Ordered rules: the first that matches a connection or a name decides about it, then
    `default`.
    """

    default: EgressDefault
    """Decision if no rule matches. Default: `deny`."""

    headers: list[HeaderRule]
    """Headers that are added to HTTPS requests outside of the sandbox, 64 rules at most. The egress
    rules must allow their hosts.
    """


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine and its capabilities."""

    also: list[str] = field(default_factory=list)
    """Other builds on this host. They are used only for memory that `build` cannot restore."""

    build: str
    """Exact build."""

    copies_memory_because: str | None = None
    """Why memory is copied instead. Left out if it is not."""

    cpu: str
    """Digest of the CPU features that memory snapshots of this host depend on."""

    format: str | None = None
    """Format of the build's memory snapshots. They can be restored by every build with the same
    format. Left out if it is not known: then only the same build can restore them, and
    filesystem snapshots may fail.
    """

    holds_after_restore: bool
    """Whether user code is paused after a resume until the sandbox knows its new generation. If
    not, it may run for some milliseconds before.
    """

    maps_memory: bool
    """Whether the memory of a resumed sandbox is mapped from its saved state, and a page is copied
    only when it is written. Forks of one snapshot then share it.
    """

    name: str
    """Name, such as `gvisor`."""

    released: str | None = None
    """Release date of the build, such as `2024-07-29`. Left out if it is not known."""

    shares_blocks: bool
    """Whether the file system of the data directory can share blocks between images."""


@dataclass(frozen=True, kw_only=True)
class EnsureExplanation:
    """The effect that a request for an environment would have."""

    considered: list[Considered]
    """Ways that would be considered, in order."""

    drift: list[str]
    """Fields of the definition that are not as recorded."""

    environment: str | None = None
    """ID of the environment, if there is one with the key."""

    joins: bool
    """Whether its sandbox is being made: the request would wait for that."""

    refused: str | None = None
    """Why the request would be refused."""

    workspace: str
    """Hash of the definition. Environments with the same hash share snapshots after the setup."""


@dataclass(frozen=True, kw_only=True)
class EnsurePhase:
    """A phase of making a sandbox."""

    name: str
    """Name."""

    took_secs: float
    """How long it took."""


@dataclass(frozen=True, kw_only=True)
class EnsuredInfo:
    """The sandbox of an environment, and the way on which it was had."""

    by: EnsuredBy
    """The way on which it was had."""

    considered: list[Considered]
    """Ways that were considered, in order."""

    drift: list[str]
    """Fields of the definition that are not as recorded, if the sandbox was kept even so."""

    environment: Environment
    """The environment."""

    joined: bool
    """Whether an earlier request had begun to make the sandbox."""

    lease: EnvironmentLease | None = None
    """Lease that the request has taken."""

    lost: list[str]
    """Losses: everything that was there before and is not any more, as sentences."""

    phases: list[EnsurePhase]
    """Phases, with the time of each."""

    restored: RestoredFrom | None = None
    """Snapshot that it was restored from."""

    sandbox: SandboxInfo
    """Its running sandbox."""

    snapshot_failure: str | None = None
    """Why the snapshot after the setup could not be taken."""

    steps: list[SetupStepView]
    """Steps of the setup, if there was one."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An environment."""

    attempt: EnvironmentAttempt | None = None
    """Attempt in progress to make its sandbox, or the latest one."""

    client_key: str | None = None
    """Key that a client library has computed for it."""

    commit: str | None = None
    """Commit that its code was cloned at."""

    created_at: datetime
    """When it was first asked for."""

    id: str
    """ID."""

    key: str | None = None
    """Key, if its caller has chosen one."""

    leases: list[EnvironmentLease]
    """Runs that use it."""

    lifecycle: EnvironmentLifecycle
    """How it is found again, and what becomes of it."""

    project: str
    """Project."""

    retired: list[str]
    """IDs of earlier sandboxes, which are kept for seven days."""

    sandbox: str | None = None
    """ID of its sandbox."""

    snapshot: str | None = None
    """ID of its latest snapshot."""

    state: EnvironmentState
    """State."""

    thread: EnvironmentThread | None = None
    """Thread, if it has no key."""

    workspace: str
    """Hash of the definition."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentAttempt:
    """An attempt to make the sandbox of an environment."""

    began_at: datetime
    """When it began."""

    caller: Caller | None = None
    """Caller who asked for it first."""

    considered: list[Considered]
    """Ways that were considered, in order."""

    ended_at: datetime | None = None
    """When it ended."""

    failure: AttemptFailure | None = None
    """Why it has failed."""

    id: str
    """ID."""

    phases: list[EnsurePhase]
    """Phases that have ended."""

    state: AttemptState
    """State."""

    steps: list[SetupStepView]
    """Steps of the setup."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentLease:
    """A lease: the use of an environment by one run."""

    expires_at: datetime
    """When it expires, unless it is renewed."""

    id: str
    """ID."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentLifecycle:
    """How an environment is found again, and what becomes of its sandbox."""

    destroy_on_complete: bool | None = None
    """Terminate the sandbox when its last lease ends."""

    keep_alive_secs: float | None = None
    """Suspend the sandbox when it was not used for this time. Default: never."""

    keep_failed: bool | None = None
    """Keep the sandbox of a setup whose step has failed, for inspection: for an hour, or until the
    environment is asked for again.
    """

    on_broken: OnBroken | None = None
    """Action if a sandbox or snapshot exists and cannot be used. Default `refuse`."""

    on_drift: OnDrift | None = None
    """Action if the definition is not the one that was recorded. Default `rebuild`."""

    reuse: Reuse | None = None
    """Whether the environment is used again. Default `thread`."""

    sandbox_max_age_secs: float | None = None
    """Greatest age of a sandbox that is used again. An older one is retired, and another one is
    restored or created. Default: any.
    """

    snapshot: SnapshotWhen | None = None
    """When snapshots are taken. Default `after_setup`."""

    snapshot_kind: SnapshotKind | None = None
    """Kind of these snapshots. Default `memory`; `filesystem` after a run."""

    snapshot_max_age_secs: float | None = None
    """Greatest age of a snapshot that is restored. Default: any."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentLog:
    """Lines of the log of the latest attempt for an environment."""

    in_progress: bool
    """Whether the attempt is in progress. Nothing is added to the log of one that has ended."""

    lines: list[EnvironmentLogLine]
    """The lines, in order."""

    next_offset: int
    """Offset of the next line: send it as `offset`."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentLogLine:
    """A line of the log of an environment."""

    at: datetime
    """When it was written."""

    offset: int
    """Its offset in the log, starting at 0."""

    step: int | None = None
    """Position of the step, starting at 0; null if it concerns no step."""

    stream: EnvironmentLogStream
    """Its origin."""

    text: str
    """The text, without the end of the line. Bytes that are not UTF-8 are replaced."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSource:
    """Code of an environment: exactly one of the fields is set."""

    context: str | None = None
    """Hash of an uploaded build context, whose files are copied. See `PUT /v1/contexts/{hash}`."""

    git: GitSource | None = None
    """Git repository, which is cloned in the sandbox."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentThread:
    """A thread of an agent, with the definition it asks for and the tenant it belongs to. Two are
    the same if all fields are equal.
    """

    definition: str
    """Name of the definition."""

    organization: str | None = None
    """Organization."""

    thread: str
    """Thread."""

    user: str | None = None
    """User."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a sandbox."""

    at: datetime
    """When it happened."""

    bytes: int | None = None
    """Number of bytes that the operation wrote to disk."""

    caller: Caller | None = None
    """Caller that asked for it. Null if no request did, and for events of version 0.1.0."""

    detail: str | None = None
    """Details as a sentence, if there are any."""

    generation: int
    """Generation of the sandbox at the time of the event."""

    initiator: str
    """Who caused the event: `user`, `timer`, `traffic`, `host` or `recovery`."""

    kind: str
    """Kind of the event, such as `created`, `suspended` or `resume_failed`."""

    number: int
    """Increases with every event, so it serves as a cursor. Numbers may have gaps."""

    operation: str | None = None
    """ID of the operation that the event belongs to."""

    project: str
    """Project of the sandbox."""

    sandbox: str
    """ID of the sandbox."""

    took_ms: int | None = None
    """Duration of the operation that the event ends, in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """How a process ended. Exactly one of `exit_code` and `signal` is set. Also the data of the
    server-sent event `exit`.
    """

    exit_code: int | None = None
    """Exit code, 0 to 255."""

    signal: int | None = None
    """Number of the signal that ended the process."""

    timed_out: bool
    """Whether the process was killed because its time limit passed."""


@dataclass(frozen=True, kw_only=True)
class ExportedImage:
    """The exported archive."""

    bytes: int
    """Size of the archive in bytes."""

    image: str
    """Digest of the image."""

    manifest: str
    """Digest of the manifest in the archive."""

    path: str
    """Path of the archive."""


@dataclass(frozen=True, kw_only=True)
class FileAttribute:
    """An extended attribute of a file."""

    name: str
    """Name, which begins with `user.`."""

    value: str
    """Value."""


@dataclass(frozen=True, kw_only=True)
class FileStat:
    """Metadata of a file."""

    gid: int
    """Group ID of the group."""

    group: str | None = None
    """Name of the group, if the sandbox has one."""

    kind: FileKind
    """Type of the file. A symbolic link is reported as a link."""

    link: str | None = None
    """Target of a symbolic link."""

    mode: str
    """Permission bits in octal, such as `0644`."""

    modified_at: datetime
    """When the contents last changed."""

    owner: str | None = None
    """Name of the owner, if the sandbox has one."""

    path: str
    """Absolute path."""

    size_bytes: int
    """Size in bytes."""

    uid: int
    """User ID of the owner."""


@dataclass(frozen=True, kw_only=True)
class ForkChild:
    """Settings of one child of a fork."""

    env: dict[str, str] | None = None
    """Environment variables that override those of the source."""

    idle_timeout_secs: Duration | None = None
    """Seconds from the last activity to the deadline. Default: as for the source."""

    labels: dict[str, str] | None = None
    """Labels that override those of the source."""

    max_run_secs: Duration | None = None
    """Longest time in seconds that a run may last. Default: as for the source."""

    name: str | None = None
    """Name of the child."""

    on_timeout: OnTimeout | None = None
    """Action at a deadline. Default: as for the source, or for the first in the line with a name,
    as for a named sandbox.
    """

    secrets: dict[str, str | None] | None = None
    """Secrets of the child: null for the value of the source, or another value. Other secrets of
    the source are not copied.
    """

    timeout_secs: Duration | None = None
    """Seconds from the start of a run to its deadline. Default: as for the source."""


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """The files that a search has found."""

    files: list[FileStat]
    """The files."""

    search: SearchEnd
    """How the search ended."""


@dataclass(frozen=True, kw_only=True)
class FoundLine:
    """A line that matches."""

    cut: bool
    """Whether the line is longer than the text."""

    line: int
    """Number of the line, from 1."""

    offset: int
    """Position of the match in the line, in bytes."""

    path: str
    """Absolute path of the file."""

    text: str
    """The line: at most 1,024 bytes of it, with the beginning of the match."""

    text_offset: int
    """Position of the text in the line, in bytes; 0 unless the beginning of the line is cut off."""


@dataclass(frozen=True, kw_only=True)
class FoundLines:
    """The lines that a search has found."""

    lines: list[FoundLine]
    """The lines."""

    search: SearchEnd
    """How the search ended."""


@dataclass(frozen=True, kw_only=True)
class GitSource:
    """A git repository."""

    depth: int | None = None
    """How many commits are fetched. Default 1."""

    full_history: bool | None = None
    """Fetch all commits and branches."""

    ref: str | None = None
    """Branch, tag or commit. Default: the branch that the server names."""

    token: str | None = field(default=None, repr=False)
    """Token for the clone. Only the clone sees it, and it is never returned."""

    token_secret: str | None = None
    """Secret of the project that is the token for the clone."""

    url: str
    """URL, without credentials."""


class _HeaderRule(TypedDict):
    host: str
    """Host name: `example.com`, or `*.example.com` for every name below it."""

    name: str
    """Name of the header."""

    value: str
    """Value, with the name of one secret of the project in braces, such as `Bearer {API_KEY}`."""


class HeaderRule(_HeaderRule, total=False):
    """A header that is set in HTTPS requests, outside of the sandbox. The first rule for a host,
    port and header counts.
    """

    port: int
    """Port. Default: 443."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Health of the daemon."""

    status: str
    """Always `ok`."""


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """A health check: a connection to a port on the loopback of the sandbox, or a request to it. An
    unhealthy process is ended and started again, unless `restart` is `never`.
    """

    failures: int | None = None
    """Number of failed checks in a row that make the process unhealthy. Default 3."""

    grace_secs: float | None = None
    """Time after a start during which failed checks do not count. Default: none."""

    interval_secs: float | None = None
    """Time between two checks. Default 10."""

    path: str | None = None
    """Path of an HTTP request GET, whose response must have a status from 200 to 399. Default: it
    is enough that the port accepts a connection.
    """

    port: int
    """TCP port."""

    timeout_secs: float | None = None
    """Time after which a check has failed, at most 60. Default 5."""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Keeps a sandbox awake until it expires or is released."""

    id: str
    """ID of the hold."""

    reason: str
    """Reason given by the holder."""

    until: datetime
    """When the hold expires."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image that sandboxes boot from."""

    bytes: int
    """Total size of its files in bytes."""

    config: ImageConfig | None = None
    """How programs of the image run by default."""

    created_at: datetime
    """When the image was imported."""

    digest: str
    """Digest of the contents: 64 hexadecimal digits."""

    files: int
    """Number of files, directories and links."""

    layers: list[str] = field(default_factory=list)
    """SHA-256 digests of its layers, lowest first."""

    source: ImageSource | None = None
    """Where the image came from, if it is known."""

    tags: list[str]
    """Tags of the image."""


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """How programs of an image run by default."""

    architecture: str | None = None
    """CPU architecture of the image, such as `amd64`."""

    command: list[str] = field(default_factory=list)
    """Arguments of the entrypoint, or the whole command if there is no entrypoint."""

    directory: str | None = None
    """Working directory."""

    entrypoint: list[str] = field(default_factory=list)
    """The program to start, before `command`. It is started only if the request asks for it."""

    env: list[str] = field(default_factory=list)
    """Environment variables of every process, as `NAME=VALUE`. Variables of the sandbox override
    them.
    """

    ports: list[str] = field(default_factory=list)
    """Ports that programs of the image listen on, such as `8080/tcp`."""

    ready: str | None = None
    """Command line for `/bin/sh` that exits with 0 once the started program is ready."""

    user: str | None = None
    """User that processes run as."""


@dataclass(frozen=True, kw_only=True)
class ImageSource:
    """Where an image came from."""

    build: str | None = None
    """Source that the image was built from, as given by its builder."""

    manifest: str | None = None
    """Digest of the manifest in its registry."""

    reference: str | None = None
    """Name of the image in its registry."""


@dataclass(frozen=True, kw_only=True)
class ImportProgress:
    """Progress of a long operation. Data of the server-sent event `progress`."""

    bytes: int
    """Number of bytes read so far."""

    bytes_total: int | None = None
    """Total number of bytes. Null if the source is a directory."""

    entries: int
    """Number of entries written so far."""

    stage: ImportStage
    """Current stage."""


@dataclass(frozen=True, kw_only=True)
class Info:
    """Version and engine of the daemon."""

    doors: dict[str, str] = field(default_factory=dict)
    """Addresses of the listeners for other clients, by name, such as `e2b`."""

    engine: Engine
    """The engine."""

    project: str
    """Project of the API key."""

    version: str
    """Version of the daemon."""


@dataclass(frozen=True, kw_only=True)
class InheritedSettings:
    """Settings of the source of a snapshot when it was taken."""

    egress: Egress
    """Where a sandbox may connect to."""

    port_access: PortAccess
    """Who can reach its ports."""

    port_host: str | None = None
    """`Host` header that programs behind the ports get; null for the host that the client named."""

    port_rules: dict[str, PortRule]
    """Exceptions for single ports, by the number of the port."""

    start: bool
    """Whether a boot starts the entrypoint and command of the image. In a memory snapshot they ran
    already.
    """


@dataclass(frozen=True, kw_only=True)
class Key:
    """An API key without its secret part."""

    created_at: datetime
    """When the key was created."""

    expires_at: datetime | None = None
    """When the key expires, if it does."""

    id: str
    """ID of the key. It is not secret."""

    name: str
    """Display name."""

    project: str | None = None
    """Project that the key gives access to."""

    sandbox: str | None = None
    """ID of the sandbox, if the scope is `sandbox`."""

    scope: KeyScope
    """Scope of the key."""


@dataclass(frozen=True, kw_only=True)
class NetworkUsage:
    """Network traffic of a sandbox with other hosts since its current run was prepared."""

    limit_bytes_per_second: int | None = None
    """Limit in bytes per second, separately for sending and receiving. Null for no limit."""

    received_bytes: int
    """Bytes received."""

    sent_bytes: int
    """Bytes sent."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation: a change of a sandbox or snapshot that takes time. Events name the operation
    that they belong to.
    """

    caller: Caller | None = None
    """Caller that asked for it. Null if no request did, and for operations of version 0.1.0."""

    code: str | None = None
    """Error code of the failure. Null if the operation has not failed."""

    deadline: datetime
    """When the operation is aborted if it has not ended."""

    ended_at: datetime | None = None
    """When the operation ended. Null while it is in progress."""

    id: str
    """ID of the operation."""

    initiator: str
    """Who started the operation: `user`, `timer`, `traffic`, `host` or `recovery`."""

    kind: str
    """Kind of the operation, such as `create`, `suspend`, `snapshot` or `fork`."""

    reason: str | None = None
    """Why the operation failed, if it did."""

    sandbox: str | None = None
    """ID of the sandbox that it changes. Null for an operation that only changes a snapshot."""

    started_at: datetime
    """When the operation started."""

    status: OperationStatus
    """Status of the operation."""


@dataclass(frozen=True, kw_only=True)
class ParallelSetup:
    """Commands of a setup that run at the same time."""

    parallel: list[str]
    """Lines for `/bin/sh`."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool of sandboxes that are made in advance."""

    claimed: int
    """How many sandboxes were claimed and are not terminated."""

    created_at: datetime
    """When the pool was created."""

    id: str
    """ID of the pool."""

    image: str | None = None
    """Digest of the image that the sandboxes boot from."""

    labels: dict[str, str]
    """Labels."""

    most: int | None = None
    """How many sandboxes may exist, waiting and claimed."""

    name: str
    """Name."""

    problem: str | None = None
    """Why sandboxes cannot be made, if that is so. The daemon keeps trying."""

    project: str
    """Project that the pool belongs to."""

    ready: int
    """How many sandboxes are to wait."""

    snapshot: str | None = None
    """ID of the snapshot that they start from."""

    waiting: int
    """How many sandboxes are suspended and wait to be claimed now."""


@dataclass(frozen=True, kw_only=True)
class PortInfo:
    """How to reach a port of a sandbox."""

    access: PortAccess
    """Who can reach the port."""

    host: str | None = None
    """`Host` header that the program gets; null for the host that the client named."""

    label: str
    """First label of the host name, such as `8080-ID`. It is followed by `.localhost` and the port
    of the daemon.
    """

    port: int
    """Port number inside the sandbox."""

    sandbox: str
    """ID of the sandbox."""

    token: str = field(repr=False)
    """Gives access to every port of this sandbox when sent as the header `X-Dormouse-Token`. A fork
    has its own token.
    """


@dataclass(frozen=True, kw_only=True)
class PortLink:
    """A browser link to a port."""

    expires_at: datetime
    """When the link expires. It can be opened once before that."""

    label: str
    """First label of the host name, such as `8080-ID`."""

    path: str
    """Path and query to open there. Append `&to=/PATH` to choose where the browser is redirected.
    Default `/`.
    """


@dataclass(frozen=True, kw_only=True)
class PortRule:
    """Exception for one port."""

    access: PortAccess | None = None
    """Who can reach the port. Default: the `port_access` of the sandbox."""

    host: str | None = None
    """`Host` header that the program gets. Default: the `port_host` of the sandbox."""


@dataclass(frozen=True, kw_only=True)
class ProcessInfo:
    """A process. Ended processes are remembered for a while."""

    argv: list[str]
    """The command and its arguments."""

    cwd: str
    """Working directory at the start."""

    env: list[str]
    """Names of the environment variables that the process got in addition to those of the sandbox."""

    exit: ExitStatus | None = None
    """How the process ended. Null while it runs."""

    label: str | None = None
    """Label that was requested, if any."""

    pid: int
    """Process ID inside the sandbox. After the process has ended, another one may use it."""

    process: int
    """Handle of the process."""

    started_at: datetime
    """When the process started, by the clock of the sandbox."""

    stderr_bytes: int
    """Number of bytes written to standard error."""

    stdout_bytes: int
    """Number of bytes written to standard output."""

    terminal: TerminalSize | None = None
    """Size of its terminal, if it has one."""

    user: str | None = None
    """User that was requested, if any."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project."""

    budgets: ProjectBudgets
    """Limits."""

    created_at: datetime | None = None
    """When the project was created. Null for `local`, which always exists."""

    name: str
    """Name."""

    used: ProjectUse
    """Use of these limits."""


@dataclass(frozen=True, kw_only=True)
class ProjectBudgets:
    """Limits on what a project may have. A limit that is left out or null does not exist."""

    cpu_millis: int | None = None
    """Largest sum of the CPU limits of running sandboxes, in thousandths of a CPU."""

    disk_bytes: int | None = None
    """Largest total size of sleep images, snapshots, volumes, images with a tag of the project, and
    build contexts.
    """

    memory_bytes: int | None = None
    """Largest sum of the memory limits of running sandboxes."""

    running: int | None = None
    """Largest number of sandboxes that run at a time."""

    sandboxes: int | None = None
    """Largest number of sandboxes that are not terminated."""


@dataclass(frozen=True, kw_only=True)
class ProjectSecret:
    """A secret of a project. Its value is never returned."""

    changed_at: datetime
    """When its value was set last."""

    created_at: datetime
    """When the secret was created."""

    name: str
    """Name."""

    used_by: int
    """Number of sandboxes with a header rule that names the secret."""


@dataclass(frozen=True, kw_only=True)
class ProjectUse:
    """Use of the budgets of a project."""

    cpu_millis: int
    """Sum of their CPU limits, in thousandths of a CPU."""

    disk_bytes: int
    """Total size of sleep images, snapshots, volumes, images with a tag of the project, and build
    contexts.
    """

    memory_bytes: int
    """Sum of their memory limits."""

    running: int
    """Number of sandboxes that run or are about to."""

    sandboxes: int
    """Number of sandboxes that are not terminated."""


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """A sandbox that was replaced with its child."""

    child: str
    """ID of the child, which is terminated."""

    future: str | None = None
    """ID of the snapshot of the parent's previous state, if that is kept. It may be in progress for
    a moment; requests that need it wait for that.
    """

    sandbox: SandboxInfo
    """The parent, running with the memory and files of the child."""


@dataclass(frozen=True, kw_only=True)
class PushedSnapshot:
    """The pushed snapshot."""

    bytes: int
    """Size of the archive in bytes."""

    manifest: str
    """Digest of the manifest in the registry."""

    reference: str
    """Name in the registry."""

    sent_bytes: int
    """How many bytes were sent. The registry already had the others."""


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """Everything that cannot be read. Quarantined objects, and everything they may depend on, are
    never deleted. `dorm repair` rebuilds records.
    """

    files: list[QuarantinedFile]
    """Unreadable or damaged saved states and images."""

    records: list[QuarantinedRecord]
    """Unreadable records."""


@dataclass(frozen=True, kw_only=True)
class QuarantinedFile:
    """A saved state or image that cannot be read or is damaged."""

    reason: str
    """Why it cannot be read, or which file is damaged."""

    what: str
    """Kind of the object, with its ID or digest."""


@dataclass(frozen=True, kw_only=True)
class QuarantinedRecord:
    """A record that cannot be read."""

    id: str
    """ID of the record."""

    kind: str
    """`sandbox`, `operation`, `snapshot`, `discard`, `webhook`, `pool`, `build`, `template`,
    `environment`, `project`, `key`, `request`, `volume` or `event`.
    """

    name: str | None = None
    """The name that the record reserves, if it can be read."""

    reason: str
    """Why the record cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A statement and what it is based on."""

    at: datetime | None = None
    """When it happened or will happen."""

    says: str
    """The statement."""

    signal: str
    """Kind of the evidence: `event`, `use`, `hold`, `limit`, `operation`, `image`, `policy`,
    `memory`, `disk`, `snapshot`, `run` or `pool`.
    """


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resource limits."""

    cpu_millis: int
    """CPU limit in thousandths of a CPU."""

    disk_bytes: int
    """How much can be written to the root file system, in bytes."""

    memory_bytes: int
    """Guest memory in bytes."""

    processes: int
    """Largest number of processes and threads."""


@dataclass(frozen=True, kw_only=True)
class ResourcesRequest:
    """Requested resource limits. Fields that are left out use their default, or the limit of the
    snapshot.
    """

    cpu_millis: int | None = None
    """CPU limit in thousandths of a CPU. Default 1000."""

    disk_bytes: Size | None = None
    """How much can be written to the root file system, in bytes. Default 4 GiB."""

    memory_bytes: Size | None = None
    """Guest memory in bytes. Default 512 MiB."""

    processes: int | None = None
    """Largest number of processes and threads. Default 512."""


@dataclass(frozen=True, kw_only=True)
class RestoredFrom:
    """Snapshot that a sandbox was restored from."""

    age_secs: float
    """Its age."""

    new: bool
    """Whether it was taken just before, after the setup of the same request."""

    shared: bool
    """Whether another environment with the same definition has taken it."""

    snapshot: str
    """ID of the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Rewound:
    """A sandbox that was rewound."""

    future: str | None = None
    """ID of the snapshot of its state before the rewind, if that is kept. It may be in progress for
    a moment; requests that need it wait for that.
    """

    sandbox: SandboxInfo
    """The running sandbox."""

    to: str
    """ID of the snapshot it was rewound to."""


@dataclass(frozen=True, kw_only=True)
class SandboxInfo:
    """A sandbox."""

    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    """Annotations: notes of programs that use the sandbox on behalf of others, by the name of the
    program, then by key.
    """

    cause: Cause | None = None
    """Why the sandbox is terminated or being terminated."""

    changed: bool | None = None
    """In the response to a command: whether it changed the sandbox. False if the sandbox was as
    requested already, perhaps because of another request.
    """

    checkpoints: Checkpoints | None = None
    """Automatic checkpoint policy, if there is one."""

    created_at: datetime
    """When the sandbox was created."""

    created_by: Caller | None = None
    """Caller that asked for it. Null if it was made for a pool, and if version 0.1.0 created it."""

    egress: Egress
    """Where the sandbox may connect to."""

    env: list[str]
    """Names of the environment variables. Their values are never returned."""

    expires_at: datetime | None = None
    """The current deadline. Only set while the sandbox runs."""

    generation: int
    """Generation: starts at 1 and increases with every resume and rewind."""

    holds: list[Hold]
    """Holds that keep the sandbox awake."""

    id: str
    """ID of the sandbox. It never changes and is never reused."""

    idle_timeout_secs: float | None = None
    """Seconds from the last activity to the deadline."""

    image: str
    """Digest of the image."""

    keep_generations: int
    """How many sleep images are kept."""

    labels: dict[str, str]
    """Labels: arbitrary strings by key."""

    last_active_at: datetime
    """When the sandbox was last used."""

    last_started_at: datetime | None = None
    """When the sandbox last began to run, by a start or a resume."""

    max_run_secs: float | None = None
    """Longest time in seconds that a run may last."""

    name: str | None = None
    """Name, if the sandbox has one."""

    older_images: list[SleepImage]
    """Sleep images older than `sleep_image`, newest first."""

    on_suspend_failure: OnSuspendFailure | None = None
    """Action if the sandbox cannot be suspended at a deadline."""

    on_timeout: OnTimeout
    """Action at a deadline."""

    on_unrestorable: OnUnrestorable
    """Action if no sleep image can be restored."""

    operation: CurrentOperation | None = None
    """The operation in progress, if there is one."""

    paused_for_disk: bool
    """Whether the sandbox is paused because the disk of the host is almost full."""

    pool: str | None = None
    """ID of the pool that the sandbox was made for, if a pool did."""

    port_access: PortAccess
    """Who can reach the ports of the sandbox."""

    port_host: str | None = None
    """`Host` header that programs behind the ports get; null for the host that the client named."""

    port_rules: dict[str, PortRule]
    """Exceptions for single ports, by the number of the port."""

    project: str
    """Project that the sandbox belongs to."""

    residence: Residence
    """Where the memory of the sandbox is."""

    resources: Resources
    """Resource limits."""

    restored: Restored
    """State that the current or last run started with."""

    restored_generation: int | None = None
    """Generation of the sleep image that the run started from. Null if it started from an image or
    a snapshot.
    """

    revision: int | None = None
    """Increases with every change of the sandbox's record. `"REVISION"` is the `ETag` for
    `If-Match`.
    """

    rewound_to: str | None = None
    """ID of the snapshot that the sandbox was last rewound to."""

    running_since: datetime | None = None
    """When the current run started. Only set while the sandbox runs."""

    secrets: list[str] = field(default_factory=list)
    """Names of the secrets. Their values are never returned."""

    sleep_image: SleepImage | None = None
    """The newest sleep image: the sandbox resumes from it, or falls back to it if its run is lost."""

    snapshot: str | None = None
    """ID of the snapshot that the first run started from. Null if it booted from an image."""

    source: str | None = None
    """ID of the sandbox that this snapshot was taken from."""

    start: bool | None = None
    """Whether the first run started the entrypoint and command of the image, or continued from
    memory in which they ran. A sandbox that boots from its files starts them again.
    """

    state: State
    """Lifecycle state."""

    suspend_failures: SuspendFailures | None = None
    """Set if the last attempt to suspend failed."""

    suspendable: bool
    """Whether the sandbox can be suspended."""

    terminated_at: datetime | None = None
    """When the sandbox was terminated."""

    timeout_after_wake_secs: float | None = None
    """Seconds from the start of a run that a call has woken to its deadline, in place of
    `timeout_secs`.
    """

    timeout_secs: float | None = None
    """Seconds from the start of a run to its deadline."""

    unreachable: Unreachable | None = None
    """Set if the run is alive but does not respond. The daemon keeps trying."""

    volumes: list[AttachedVolume] = field(default_factory=list)
    """Attached volumes."""

    waits_in_pool: bool | None = None
    """Whether the sandbox still waits in that pool to be claimed."""

    wake: Wake | None = None
    """Calls that resume the sandbox when it is suspended."""


@dataclass(frozen=True, kw_only=True)
class SearchEnd:
    """How a search ended."""

    binary_files: int
    """Number of binary files that were skipped."""

    entries: int
    """Number of files and directories that were looked at."""

    read_bytes: int
    """Number of bytes that were read from files."""

    skipped_directories: int
    """Number of directories that were skipped because they are nested more than 256 deep, or belong
    to a file system such as `/proc`.
    """

    truncated_by: SearchLimit | None = None
    """Limit at which the search ended before all was searched. Null if it is complete."""

    unreadable: int
    """Number of files and directories that could not be read."""


@dataclass(frozen=True, kw_only=True)
class ServiceEvent:
    """Something that happened to a service."""

    at: datetime
    """When it happened, by the clock of the sandbox."""

    detail: str | None = None
    """Why it could not be started or is unhealthy; the pause before a restart."""

    exit: ExitStatus | None = None
    """How the process ended."""

    kind: ServiceEventKind
    """Kind of the event."""

    number: int
    """Number of the event: the events of a service are counted from 1."""

    process: int | None = None
    """Handle of the process that was started or has ended."""


@dataclass(frozen=True, kw_only=True)
class ServiceInfo:
    """A service."""

    argv: list[str]
    """The command and its arguments."""

    check: HealthCheck | None = None
    """How its health is checked. Null if it is not."""

    health: ServiceHealth
    """Health of its process."""

    last_event: int
    """Number of the newest event."""

    last_exit: ExitStatus | None = None
    """How the last process ended that has ended. Null if none has."""

    max_restarts: int
    """Number of restarts within the window after which the service has failed."""

    name: str
    """Name."""

    process: int
    """Handle of its process, the present or the last one."""

    restart: Restart
    """When the process is started again."""

    restart_delay_max_secs: float
    """Longest pause before a restart."""

    restart_delay_secs: float
    """Pause before the first restart."""

    restart_window_secs: float
    """The window in which restarts are counted."""

    restarts: int
    """Number of times that the process was started again."""

    started_at: datetime
    """When that process started, by the clock of the sandbox."""

    state: ServiceState
    """State of the service."""

    stderr_bytes: int
    """Number of bytes written to standard error, over all restarts."""

    stdout_bytes: int
    """Number of bytes written to standard output, over all restarts."""


SetupStep = str | ParallelSetup
"""A step of a setup."""


@dataclass(frozen=True, kw_only=True)
class SetupStepView:
    """A step of a setup."""

    began_at: datetime | None = None
    """When it began."""

    ended_at: datetime | None = None
    """When it ended."""

    exit_code: int | None = None
    """Exit code, if it exited."""

    state: SetupState
    """State."""

    title: str
    """The command as one line."""


@dataclass(frozen=True, kw_only=True)
class SleepImage:
    """The saved state of a suspended sandbox."""

    bytes: int
    """Size on disk in bytes."""

    generation: int
    """Generation that was saved."""

    keeps: Kept | None = None
    """The part of the sandbox that it keeps."""

    taken_at: datetime
    """When the sandbox was paused for the save."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot."""

    alone_bytes: int | None = None
    """Disk space that deleting the snapshot frees. Only present for completed snapshots in lists
    and in `GET /v1/snapshots/{id}`.
    """

    bytes: int
    """Size on disk in bytes. 0 until the snapshot is completed."""

    code: str | None = None
    """Error code of that failure."""

    created_at: datetime
    """When the snapshot was requested."""

    expires_at: datetime | None = None
    """When the snapshot is deleted automatically, if it is."""

    generation: int
    """Generation of that sandbox."""

    goes_when_free: bool
    """Whether the snapshot is deleted as soon as nothing uses it. Nothing can be created from it
    any more.
    """

    held_by: list[str] | None = None
    """Users of the snapshot, which prevent its deletion. Only present in `GET /v1/snapshots/{id}`."""

    id: str
    """ID of the snapshot."""

    image: str
    """Digest of the image that its root file system is based on."""

    inherited: InheritedSettings | None = None
    """Settings that sandboxes that start from the snapshot have by default. Null if they are not
    known: then the general defaults hold.
    """

    kind: SnapshotKind
    """Contents of the snapshot."""

    labels: dict[str, str]
    """Labels: arbitrary strings by key."""

    made_by: Maker
    """Why the snapshot was made."""

    name: str | None = None
    """Name under which the snapshot serves as an image, if it has one."""

    parent: str | None = None
    """ID of the snapshot that that sandbox was created from."""

    project: str
    """Project that the snapshot belongs to."""

    reason: str | None = None
    """Why the snapshot failed, if it did."""

    resources: Resources
    """Resource limits of sandboxes that start from the snapshot."""

    shared_bytes: int | None = None
    """Disk space that the snapshot needs and shares with others: layers below it and common files.
    Present together with `alone_bytes`.
    """

    shares_data: bool
    """Whether the snapshot and the sleep image it was made from were one copy on disk when it was
    made, because the file system cannot share blocks between files. Damage to one is damage to
    the other.
    """

    source: str
    """ID of the sandbox that the snapshot was taken from."""

    status: SnapshotStatus
    """Status of the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An object on disk that can be verified."""

    id: str
    """Digest or ID of the object."""

    kind: str
    """`image`, `image_layer` (part of images, read only by imports) or `saved_state` (the saved
    state of a sleep image or snapshot).
    """


@dataclass(frozen=True, kw_only=True)
class SuspendFailures:
    """Consecutive failed attempts to suspend a sandbox."""

    count: int
    """Number of failures."""

    next_attempt_at: datetime
    """Earliest time of the next automatic attempt."""

    reason: str
    """Why the last one failed."""

    since: datetime
    """When the first of them happened."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """A template."""

    created_at: datetime
    """When it was created."""

    id: str
    """ID."""

    name: str
    """Name."""

    project: str
    """Project."""

    tags: dict[str, TemplateVersion]
    """The versions that tags stand for."""


@dataclass(frozen=True, kw_only=True)
class TemplateVersion:
    """The image or snapshot that a tag stands for, with the settings of sandboxes."""

    build: str | None = None
    """ID of the build that made it."""

    created_at: datetime
    """When the tag began to stand for this."""

    env: list[str]
    """Names of its environment variables."""

    image: str | None = None
    """Digest of the image."""

    resources: Resources | None = None
    """Resource limits of its sandboxes; null for those of the snapshot, or the general defaults."""

    snapshot: str | None = None
    """ID of the snapshot."""

    start: bool | None = None
    """Whether the program of the image is started in each sandbox; null if that is as when a
    sandbox is created from the image or snapshot.
    """


@dataclass(frozen=True, kw_only=True)
class TerminalSize:
    """Size of a terminal."""

    cols: int
    """Number of columns."""

    rows: int
    """Number of rows."""


@dataclass(frozen=True, kw_only=True)
class TreeNode:
    """A sandbox or snapshot in the tree."""

    bytes: int
    """Disk space used by the snapshot, or by the sleep images of the sandbox, in bytes."""

    created_at: datetime | None = None
    """When it was created. Not known for every deleted snapshot."""

    depth: int
    """Number of ancestors."""

    generation: int | None = None
    """Generation of the sandbox, or of the sandbox that the snapshot was taken from."""

    id: str
    """ID of the sandbox or snapshot."""

    kind: TreeKind
    """Whether the node is a sandbox or a snapshot."""

    labels: dict[str, str]
    """Labels: arbitrary strings by key."""

    name: str | None = None
    """Name of the sandbox, if it has one."""

    parent: str | None = None
    """ID of the parent: the snapshot that a sandbox was created from, or the sandbox that a
    snapshot was taken from.
    """

    state: str
    """State of the sandbox or status of the snapshot; `deleted` for a deleted snapshot that
    sandboxes were created from.
    """


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A run that is alive but does not respond."""

    reason: str
    """The attempt and its failure."""

    since: datetime
    """When this was first noticed."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Resource usage of a sandbox on the host. All values are zero or null while it is only on
    disk.
    """

    cpu_secs: float
    """CPU time in seconds since the current run started."""

    disk_bytes: int | None = None
    """Disk space in use. Null if the disk of the sandbox has no size limit of its own on this host."""

    disk_io: DiskIo | None = None
    """Disk reads and writes. Left out if the host does not count them."""

    memory_bytes: int
    """Host memory in use."""

    network: NetworkUsage | None = None
    """Network traffic. Null without a network."""

    processes: int
    """Number of processes on the host."""


@dataclass(frozen=True, kw_only=True)
class UsageHistory:
    """Resource usage of a sandbox in the last hour."""

    interval_secs: float | None = None
    """Seconds between two samples. Null if this daemon takes none."""

    samples: list[UsageSample]
    """Samples in the order they were taken. There are none of a time at which the sandbox did not
    run, and none from before the daemon was started.
    """


@dataclass(frozen=True, kw_only=True)
class UsageSample:
    """Resource usage of a sandbox at one time."""

    cpus: float | None = None
    """Number of CPUs in use on average since the sample before. Null for the first sample after the
    sandbox was started or resumed from disk.
    """

    resources: Resources
    """Limits at that time."""

    taken_at: datetime
    """When it was measured."""

    usage: Usage
    """Resource usage."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The result of verifying an object."""

    bytes: int
    """Total size of its files in bytes, as far as it is known."""

    files: list[DamagedFile]
    """Its damaged files: at most 20 of an image, the first one of any other object."""

    id: str
    """Digest or ID of the object."""

    kind: str
    """Kind of the object, as in `Stored`."""

    verdict: str
    """`sound`, `damaged`, or `gone` if the object was deleted in the meantime."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A volume."""

    attached_to: list[str]
    """Sandboxes that the volume is attached to, each with its state."""

    created_at: datetime
    """When the volume was created."""

    health: VolumeHealth
    """Health of the volume."""

    id: str
    """ID of the volume."""

    name: str
    """Name of the volume."""

    problem: str | None = None
    """The problem with the volume, if there is one."""

    size_bytes: int
    """Size in bytes, including the overhead of the file system."""

    used_bytes: int | None = None
    """Used space in bytes. Only known while the volume is mounted."""

    writers: Writers
    """How many sandboxes may write to the volume at the same time."""


@dataclass(frozen=True, kw_only=True)
class VolumeFile:
    """An entry of a directory on a volume."""

    bytes: int
    """Size in bytes."""

    kind: VolumeFileKind
    """Type of the file."""

    name: str
    """Name of the entry. Bytes that are not UTF-8 are shown as `�`."""


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """A change in a watched directory. Data of the server-sent event `change`."""

    kind: WatchKind
    """Kind of the change."""

    path: str
    """The path that changed."""


@dataclass(frozen=True, kw_only=True)
class WatcherEvent:
    """A change that a watcher has kept."""

    kind: WatchKind
    """Kind of the change. `overflow` stands for all changes since the one before it: list the
    directory again.
    """

    number: int
    """Number of the change: the changes of a watcher are counted from 1."""

    path: str
    """The path that changed."""


@dataclass(frozen=True, kw_only=True)
class WatcherInfo:
    """A watcher."""

    last: int
    """Number of the newest change; 0 if there was none."""

    path: str
    """The watched directory."""

    recursive: bool
    """Whether everything below its entries is watched too."""

    watcher: int
    """Handle of the watcher. Handles are never reused in a sandbox."""


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook: events are sent to its URL."""

    created_at: datetime
    """When the webhook was created."""

    delivered: int
    """Number of the last event that was delivered or skipped."""

    id: str
    """ID of the webhook."""

    kinds: list[str]
    """Kinds of events that are sent. Empty for all kinds."""

    secret: str | None = field(default=None, repr=False)
    """Signing secret in the format of Standard Webhooks. Only present in the response that creates
    the webhook.
    """

    url: str
    """URL that receives the events."""


@dataclass(frozen=True, kw_only=True)
class Why:
    """Explains the state of a sandbox."""

    because: list[Reason]
    """Reasons for the state, most important first."""

    next: list[Reason]
    """The next expected events, soonest first."""

    on_disk: list[Reason]
    """Data that is kept on disk for the sandbox, with the reason."""

    refused: Reason | None = None
    """The last failure or refusal, if nothing has succeeded since."""

    sandbox: str
    """ID of the sandbox."""

    summary: str
    """The state as a sentence."""
