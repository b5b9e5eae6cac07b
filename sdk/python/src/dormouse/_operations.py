"""The operations of the API. Generated from docs/reference/openapi.json; do not edit."""

from ._request import Operation

GET_METRICS = Operation("getMetrics", "GET", "/metrics")
GET_AUTHORITY = Operation("getAuthority", "GET", "/v1/authority")
LIST_BUILDS = Operation("listBuilds", "GET", "/v1/builds")
CREATE_BUILD = Operation("createBuild", "POST", "/v1/builds", accepts=("Idempotency-Key",))
GET_BUILD = Operation("getBuild", "GET", "/v1/builds/{build}")
CANCEL_BUILD = Operation("cancelBuild", "POST", "/v1/builds/{build}/cancel")
GET_BUILD_LOG = Operation("getBuildLog", "GET", "/v1/builds/{build}/logs")
GET_BUILD_CONTEXT = Operation("getBuildContext", "GET", "/v1/contexts/{hash}")
UPLOAD_BUILD_CONTEXT = Operation("uploadBuildContext", "PUT", "/v1/contexts/{hash}")
DIFF_FILES = Operation("diffFiles", "GET", "/v1/diff")
ENSURE_ENVIRONMENT = Operation(
    "ensureEnvironment", "POST", "/v1/ensure", accepts=("Idempotency-Key",)
)
EXPLAIN_ENSURE = Operation("explainEnsure", "POST", "/v1/ensure/explain")
LIST_ENVIRONMENTS = Operation("listEnvironments", "GET", "/v1/environments")
GET_ENVIRONMENT = Operation("getEnvironment", "GET", "/v1/environments/{environment}")
REMOVE_ENVIRONMENT = Operation("removeEnvironment", "DELETE", "/v1/environments/{environment}")
CANCEL_ENVIRONMENT = Operation("cancelEnvironment", "POST", "/v1/environments/{environment}/cancel")
RENEW_ENVIRONMENT_LEASE = Operation(
    "renewEnvironmentLease", "POST", "/v1/environments/{environment}/leases/{lease}/renew"
)
GET_ENVIRONMENT_LOG = Operation("getEnvironmentLog", "GET", "/v1/environments/{environment}/logs")
RELEASE_ENVIRONMENT = Operation(
    "releaseEnvironment", "POST", "/v1/environments/{environment}/release"
)
LIST_EVENTS = Operation("listEvents", "GET", "/v1/events")
PREVIEW_GARBAGE_COLLECTION = Operation("previewGarbageCollection", "GET", "/v1/gc")
COLLECT_GARBAGE = Operation("collectGarbage", "POST", "/v1/gc")
GET_HEALTH = Operation("getHealth", "GET", "/v1/health")
LIST_IMAGES = Operation("listImages", "GET", "/v1/images")
COMPOSE_IMAGE = Operation("composeImage", "POST", "/v1/images/compose")
IMPORT_IMAGE = Operation("importImage", "POST", "/v1/images/import")
PULL_IMAGE = Operation("pullImage", "POST", "/v1/images/pull")
UPLOAD_IMAGE = Operation("uploadImage", "POST", "/v1/images/upload")
GET_IMAGE = Operation("getImage", "GET", "/v1/images/{reference}")
DELETE_IMAGE = Operation("deleteImage", "DELETE", "/v1/images/{reference}")
DOWNLOAD_IMAGE = Operation("downloadImage", "GET", "/v1/images/{reference}/download")
EXPORT_IMAGE = Operation("exportImage", "POST", "/v1/images/{reference}/export")
GET_INFO = Operation("getInfo", "GET", "/v1/info")
LIST_KEYS = Operation("listKeys", "GET", "/v1/keys")
CREATE_KEY = Operation("createKey", "POST", "/v1/keys", accepts=("Idempotency-Key",))
DELETE_KEY = Operation("deleteKey", "DELETE", "/v1/keys/{id}")
GET_OPEN_API = Operation("getOpenApi", "GET", "/v1/openapi.json")
LIST_OPERATIONS = Operation("listOperations", "GET", "/v1/operations")
GET_OPERATION = Operation("getOperation", "GET", "/v1/operations/{id}")
LIST_POOLS = Operation("listPools", "GET", "/v1/pools")
CREATE_POOL = Operation("createPool", "POST", "/v1/pools", accepts=("Idempotency-Key",))
GET_POOL = Operation("getPool", "GET", "/v1/pools/{pool}")
DELETE_POOL = Operation("deletePool", "DELETE", "/v1/pools/{pool}")
CLAIM_SANDBOX = Operation(
    "claimSandbox", "POST", "/v1/pools/{pool}/claim", accepts=("Idempotency-Key",)
)
RESIZE_POOL = Operation("resizePool", "PUT", "/v1/pools/{pool}/size")
LIST_PROJECTS = Operation("listProjects", "GET", "/v1/projects")
CREATE_PROJECT = Operation("createProject", "POST", "/v1/projects")
GET_PROJECT = Operation("getProject", "GET", "/v1/projects/{project}")
DELETE_PROJECT = Operation("deleteProject", "DELETE", "/v1/projects/{project}")
SET_PROJECT_BUDGETS = Operation("setProjectBudgets", "PUT", "/v1/projects/{project}/budgets")
GET_QUARANTINE = Operation("getQuarantine", "GET", "/v1/quarantine")
LIST_SANDBOXES = Operation("listSandboxes", "GET", "/v1/sandboxes")
CREATE_SANDBOX = Operation("createSandbox", "POST", "/v1/sandboxes", accepts=("Idempotency-Key",))
GET_SANDBOX = Operation("getSandbox", "GET", "/v1/sandboxes/{id}")
DELETE_SANDBOX = Operation("deleteSandbox", "DELETE", "/v1/sandboxes/{id}", accepts=("If-Match",))
UPDATE_SANDBOX = Operation("updateSandbox", "PATCH", "/v1/sandboxes/{id}", accepts=("If-Match",))
CHECKPOINT_SANDBOX = Operation(
    "checkpointSandbox",
    "POST",
    "/v1/sandboxes/{id}/checkpoint",
    accepts=("Idempotency-Key", "If-Match",),
)
SET_CHECKPOINT_POLICY = Operation(
    "setCheckpointPolicy", "POST", "/v1/sandboxes/{id}/checkpoints", accepts=("If-Match",)
)
CLONE_SANDBOX = Operation(
    "cloneSandbox", "POST", "/v1/sandboxes/{id}/clone", accepts=("Idempotency-Key",)
)
SET_EGRESS = Operation("setEgress", "POST", "/v1/sandboxes/{id}/egress", accepts=("If-Match",))
EVICT_SANDBOX = Operation("evictSandbox", "POST", "/v1/sandboxes/{id}/evict", accepts=("If-Match",))
EXEC_COMMAND = Operation(
    "execCommand", "POST", "/v1/sandboxes/{id}/exec", accepts=("X-Dormouse-Wake",)
)
EXTEND_SANDBOX = Operation(
    "extendSandbox", "POST", "/v1/sandboxes/{id}/extend", accepts=("If-Match",)
)
READ_FILE = Operation("readFile", "GET", "/v1/sandboxes/{id}/files", accepts=("X-Dormouse-Wake",))
WRITE_FILE = Operation("writeFile", "PUT", "/v1/sandboxes/{id}/files", accepts=("X-Dormouse-Wake",))
DELETE_FILE = Operation(
    "deleteFile", "DELETE", "/v1/sandboxes/{id}/files", accepts=("X-Dormouse-Wake",)
)
GET_FILE_ATTRIBUTES = Operation(
    "getFileAttributes", "GET", "/v1/sandboxes/{id}/files/attributes", accepts=("X-Dormouse-Wake",)
)
SET_FILE_ATTRIBUTES = Operation(
    "setFileAttributes", "POST", "/v1/sandboxes/{id}/files/attributes", accepts=("X-Dormouse-Wake",)
)
FIND_FILES = Operation(
    "findFiles", "GET", "/v1/sandboxes/{id}/files/find", accepts=("X-Dormouse-Wake",)
)
FIND_LINES = Operation(
    "findLines", "GET", "/v1/sandboxes/{id}/files/grep", accepts=("X-Dormouse-Wake",)
)
LIST_FILES = Operation(
    "listFiles", "GET", "/v1/sandboxes/{id}/files/list", accepts=("X-Dormouse-Wake",)
)
CREATE_DIRECTORY = Operation(
    "createDirectory", "POST", "/v1/sandboxes/{id}/files/mkdir", accepts=("X-Dormouse-Wake",)
)
RENAME_FILE = Operation(
    "renameFile", "POST", "/v1/sandboxes/{id}/files/rename", accepts=("X-Dormouse-Wake",)
)
STAT_FILE = Operation(
    "statFile", "GET", "/v1/sandboxes/{id}/files/stat", accepts=("X-Dormouse-Wake",)
)
WATCH_FILES = Operation(
    "watchFiles", "GET", "/v1/sandboxes/{id}/files/watch", accepts=("X-Dormouse-Wake",)
)
FORK_SANDBOX = Operation(
    "forkSandbox", "POST", "/v1/sandboxes/{id}/fork", accepts=("Idempotency-Key",)
)
CREATE_HOLD = Operation(
    "createHold", "POST", "/v1/sandboxes/{id}/holds", accepts=("Idempotency-Key", "If-Match",)
)
DELETE_HOLD = Operation(
    "deleteHold", "DELETE", "/v1/sandboxes/{id}/holds/{hold}", accepts=("If-Match",)
)
GET_SANDBOX_METRICS = Operation("getSandboxMetrics", "GET", "/v1/sandboxes/{id}/metrics")
GET_PORT = Operation("getPort", "GET", "/v1/sandboxes/{id}/ports/{port}")
CREATE_PORT_LINK = Operation("createPortLink", "POST", "/v1/sandboxes/{id}/ports/{port}/link")
LIST_PROCESSES = Operation(
    "listProcesses", "GET", "/v1/sandboxes/{id}/processes", accepts=("X-Dormouse-Wake",)
)
START_PROCESS = Operation(
    "startProcess", "POST", "/v1/sandboxes/{id}/processes", accepts=("X-Dormouse-Wake",)
)
GET_PROCESS = Operation(
    "getProcess", "GET", "/v1/sandboxes/{id}/processes/{process}", accepts=("X-Dormouse-Wake",)
)
KILL_PROCESS = Operation(
    "killProcess",
    "POST",
    "/v1/sandboxes/{id}/processes/{process}/kill",
    accepts=("X-Dormouse-Wake",),
)
STREAM_PROCESS_OUTPUT = Operation(
    "streamProcessOutput",
    "GET",
    "/v1/sandboxes/{id}/processes/{process}/output",
    accepts=("X-Dormouse-Wake",),
)
RESIZE_PROCESS_TERMINAL = Operation(
    "resizeProcessTerminal",
    "POST",
    "/v1/sandboxes/{id}/processes/{process}/resize",
    accepts=("X-Dormouse-Wake",),
)
SIGNAL_PROCESS = Operation(
    "signalProcess",
    "POST",
    "/v1/sandboxes/{id}/processes/{process}/signal",
    accepts=("X-Dormouse-Wake",),
)
WRITE_PROCESS_STDIN = Operation(
    "writeProcessStdin",
    "POST",
    "/v1/sandboxes/{id}/processes/{process}/stdin",
    accepts=("X-Dormouse-Wake",),
)
CLOSE_PROCESS_STDIN = Operation(
    "closeProcessStdin",
    "POST",
    "/v1/sandboxes/{id}/processes/{process}/stdin/close",
    accepts=("X-Dormouse-Wake",),
)
WAIT_FOR_PROCESS = Operation(
    "waitForProcess",
    "GET",
    "/v1/sandboxes/{id}/processes/{process}/wait",
    accepts=("X-Dormouse-Wake",),
)
PROMOTE_SANDBOX = Operation(
    "promoteSandbox", "POST", "/v1/sandboxes/{id}/promote", accepts=("Idempotency-Key",)
)
OPEN_TERMINAL = Operation(
    "openTerminal", "GET", "/v1/sandboxes/{id}/pty", accepts=("X-Dormouse-Wake",)
)
RESTART_SANDBOX = Operation(
    "restartSandbox", "POST", "/v1/sandboxes/{id}/restart", accepts=("Idempotency-Key",)
)
RESUME_SANDBOX = Operation(
    "resumeSandbox", "POST", "/v1/sandboxes/{id}/resume", accepts=("If-Match",)
)
SET_RETENTION = Operation(
    "setRetention", "POST", "/v1/sandboxes/{id}/retention", accepts=("If-Match",)
)
REWIND_SANDBOX = Operation(
    "rewindSandbox", "POST", "/v1/sandboxes/{id}/rewind", accepts=("Idempotency-Key", "If-Match",)
)
LIST_SERVICES = Operation(
    "listServices", "GET", "/v1/sandboxes/{id}/services", accepts=("X-Dormouse-Wake",)
)
START_SERVICE = Operation(
    "startService", "POST", "/v1/sandboxes/{id}/services", accepts=("X-Dormouse-Wake",)
)
GET_SERVICE = Operation(
    "getService", "GET", "/v1/sandboxes/{id}/services/{service}", accepts=("X-Dormouse-Wake",)
)
REMOVE_SERVICE = Operation(
    "removeService", "DELETE", "/v1/sandboxes/{id}/services/{service}", accepts=("X-Dormouse-Wake",)
)
LIST_SERVICE_EVENTS = Operation(
    "listServiceEvents",
    "GET",
    "/v1/sandboxes/{id}/services/{service}/events",
    accepts=("X-Dormouse-Wake",),
)
STREAM_SERVICE_OUTPUT = Operation(
    "streamServiceOutput",
    "GET",
    "/v1/sandboxes/{id}/services/{service}/output",
    accepts=("X-Dormouse-Wake",),
)
STOP_SERVICE = Operation(
    "stopService",
    "POST",
    "/v1/sandboxes/{id}/services/{service}/stop",
    accepts=("X-Dormouse-Wake",),
)
SUSPEND_SANDBOX = Operation(
    "suspendSandbox", "POST", "/v1/sandboxes/{id}/suspend", accepts=("If-Match",)
)
TERMINATE_SANDBOX = Operation(
    "terminateSandbox", "POST", "/v1/sandboxes/{id}/terminate", accepts=("If-Match",)
)
SET_TIMEOUTS = Operation(
    "setTimeouts", "POST", "/v1/sandboxes/{id}/timeouts", accepts=("If-Match",)
)
GET_SANDBOX_USAGE = Operation("getSandboxUsage", "GET", "/v1/sandboxes/{id}/usage")
ATTACH_VOLUME = Operation(
    "attachVolume", "POST", "/v1/sandboxes/{id}/volumes", accepts=("If-Match",)
)
DETACH_VOLUME = Operation(
    "detachVolume", "DELETE", "/v1/sandboxes/{id}/volumes", accepts=("If-Match",)
)
LIST_WATCHERS = Operation(
    "listWatchers", "GET", "/v1/sandboxes/{id}/watchers", accepts=("X-Dormouse-Wake",)
)
CREATE_WATCHER = Operation(
    "createWatcher", "POST", "/v1/sandboxes/{id}/watchers", accepts=("X-Dormouse-Wake",)
)
REMOVE_WATCHER = Operation(
    "removeWatcher", "DELETE", "/v1/sandboxes/{id}/watchers/{watcher}", accepts=("X-Dormouse-Wake",)
)
TAKE_WATCHER_EVENTS = Operation(
    "takeWatcherEvents",
    "GET",
    "/v1/sandboxes/{id}/watchers/{watcher}/events",
    accepts=("X-Dormouse-Wake",),
)
EXPLAIN_SANDBOX = Operation("explainSandbox", "GET", "/v1/sandboxes/{id}/why")
LIST_SECRETS = Operation("listSecrets", "GET", "/v1/secrets")
GET_SECRET = Operation("getSecret", "GET", "/v1/secrets/{secret}")
SET_SECRET = Operation("setSecret", "PUT", "/v1/secrets/{secret}")
DELETE_SECRET = Operation("deleteSecret", "DELETE", "/v1/secrets/{secret}")
LIST_SNAPSHOTS = Operation("listSnapshots", "GET", "/v1/snapshots")
IMPORT_SNAPSHOT = Operation(
    "importSnapshot", "POST", "/v1/snapshots/import", accepts=("Idempotency-Key",)
)
PULL_SNAPSHOT = Operation(
    "pullSnapshot", "POST", "/v1/snapshots/pull", accepts=("Idempotency-Key",)
)
GET_SNAPSHOT = Operation("getSnapshot", "GET", "/v1/snapshots/{id}")
DELETE_SNAPSHOT = Operation("deleteSnapshot", "DELETE", "/v1/snapshots/{id}")
EXPORT_SNAPSHOT = Operation("exportSnapshot", "GET", "/v1/snapshots/{id}/export")
EXTRACT_SNAPSHOT_FILES = Operation(
    "extractSnapshotFiles", "POST", "/v1/snapshots/{id}/files", accepts=("Idempotency-Key",)
)
PUSH_SNAPSHOT = Operation("pushSnapshot", "POST", "/v1/snapshots/{id}/push")
LIST_TEMPLATES = Operation("listTemplates", "GET", "/v1/templates")
CREATE_TEMPLATE = Operation("createTemplate", "POST", "/v1/templates")
GET_TEMPLATE = Operation("getTemplate", "GET", "/v1/templates/{template}")
DELETE_TEMPLATE = Operation("deleteTemplate", "DELETE", "/v1/templates/{template}")
TAG_TEMPLATE = Operation("tagTemplate", "POST", "/v1/templates/{template}/tags")
GET_TREE = Operation("getTree", "GET", "/v1/tree")
LIST_STORED_OBJECTS = Operation("listStoredObjects", "GET", "/v1/verify")
VERIFY_STORED_OBJECT = Operation("verifyStoredObject", "POST", "/v1/verify")
LIST_VOLUMES = Operation("listVolumes", "GET", "/v1/volumes")
CREATE_VOLUME = Operation("createVolume", "POST", "/v1/volumes", accepts=("Idempotency-Key",))
GET_VOLUME = Operation("getVolume", "GET", "/v1/volumes/{volume}")
DELETE_VOLUME = Operation("deleteVolume", "DELETE", "/v1/volumes/{volume}")
READ_VOLUME_FILE = Operation("readVolumeFile", "GET", "/v1/volumes/{volume}/files")
WRITE_VOLUME_FILE = Operation("writeVolumeFile", "PUT", "/v1/volumes/{volume}/files")
LIST_VOLUME_FILES = Operation("listVolumeFiles", "GET", "/v1/volumes/{volume}/files/list")
LIST_WEBHOOKS = Operation("listWebhooks", "GET", "/v1/webhooks")
CREATE_WEBHOOK = Operation("createWebhook", "POST", "/v1/webhooks", accepts=("Idempotency-Key",))
DELETE_WEBHOOK = Operation("deleteWebhook", "DELETE", "/v1/webhooks/{id}")
REPLAY_WEBHOOK = Operation("replayWebhook", "POST", "/v1/webhooks/{id}/replay")
