//! Examples of the main schemas in the OpenAPI document. Tests read each of them into its type, and
//! check that the requests are valid.

use serde_json::{Value, json};
use utoipa::openapi::{Components, RefOr, Schema};

/// Adds each example to the schema it belongs to.
pub(super) fn add(components: &mut Components) {
    for (name, example) in all() {
        if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(name) {
            object.examples.push(example);
        }
    }
}

/// Every example with the name of its schema.
pub(super) fn all() -> Vec<(&'static str, Value)> {
    let mut all = requests();
    all.extend(answers());
    all
}

fn requests() -> Vec<(&'static str, Value)> {
    vec![
        (
            "CreateSandbox",
            json!({
                "image": "python:3.13-slim",
                "name": "agent-7",
                "resources": { "cpu_millis": 2000, "memory_bytes": 1_073_741_824 },
                "egress": { "allow": ["pypi.org", "files.pythonhosted.org"] },
                "env": { "LANG": "C.UTF-8" },
                "idle_timeout_secs": 600.0,
                "checkpoints": { "every_secs": 900.0, "keep": "3,24x1h,7x1d" },
                "volumes": [{ "volume": "models", "path": "/models", "read_only": true }],
                "labels": { "team": "research" }
            }),
        ),
        (
            "SetEgress",
            json!({
                "egress": {
                    "ordered": {
                        "rules": [{ "deny": "203.0.113.0/24" }, { "allow": "*.example.com" }],
                        "default": "deny"
                    }
                }
            }),
        ),
        ("CheckpointRequest", json!({ "kind": "memory", "wait": true, "labels": { "step": "deps-installed" } })),
        ("ForkRequest", json!({ "count": 8, "on_partial_failure": "roll_back", "volumes": "read_only" })),
        ("ExecRequest", json!({ "argv": ["python3", "-c", "print(6 * 7)"], "cwd": "/work", "timeout_secs": 30.0 })),
        (
            "StartProcess",
            json!({ "shell": "python3 -m http.server 8000", "cwd": "/work", "stdin": "empty", "label": "web" }),
        ),
        ("EnsureRequest", ensure_request()),
        ("CreateVolume", json!({ "name": "models", "size_bytes": 10_737_418_240_u64, "writers": "one" })),
        ("PullImage", json!({ "reference": "python:3.13-slim", "insecure": false, "pull": "missing" })),
        ("UpdateSandbox", json!({ "name": "agent-7", "wake": "any", "labels": { "team": "research", "draft": null } })),
        (
            "CreateProject",
            json!({
                "name": "team-a",
                "budgets": {
                    "sandboxes": 200,
                    "running": 20,
                    "cpu_millis": null,
                    "memory_bytes": 34_359_738_368_u64,
                    "disk_bytes": null
                }
            }),
        ),
        ("CreateKey", json!({ "name": "ci", "scope": "read_only", "lifetime_secs": 86_400.0, "form": "dormouse" })),
        (
            "CreateWebhook",
            json!({ "url": "http://hooks.example.com/dormouse", "kinds": ["suspended", "resume_failed"] }),
        ),
    ]
}

fn ensure_request() -> Value {
    json!({
        "thread": { "thread": "t1", "definition": "repo-agent", "user": "u1" },
        "image": "node:22",
        "source": { "git": { "url": "https://git.example.com/app.git", "ref": "main", "full_history": false } },
        "secrets": { "NPM_TOKEN": "NPM_TOKEN" },
        "setup": ["npm ci", { "parallel": ["npm run build", "npm test"] }],
        "ready_command": "test -d dist",
        "lifecycle": {
            "snapshot": "after_setup",
            "keep_alive_secs": 900.0,
            "destroy_on_complete": false,
            "on_drift": "rebuild",
            "keep_failed": false
        },
        "lease_secs": 600.0
    })
}

fn answers() -> Vec<(&'static str, Value)> {
    vec![
        ("Sandbox", sandbox()),
        ("Snapshot", snapshot()),
        (
            "Problem",
            json!({
                "type": "/errors/not_found",
                "title": "Not found",
                "status": 404,
                "detail": "there is no sandbox 'agent-7'",
                "code": "not_found",
                "next_step": "list the existing sandboxes"
            }),
        ),
        (
            "ExecResult",
            json!({
                "process": 12,
                "pid": 47,
                "exit_code": 0,
                "signal": null,
                "timed_out": false,
                "stdout": "42\n",
                "stdout_encoding": "utf8",
                "stdout_truncated_bytes": 0,
                "stderr": "",
                "stderr_encoding": "utf8",
                "stderr_truncated_bytes": 0
            }),
        ),
        (
            "Event",
            json!({
                "number": 1841,
                "at": "2026-11-22T09:41:07.412Z",
                "project": "local",
                "sandbox": "kq3v9xw2mzc7hf5ra8td",
                "kind": "suspended",
                "initiator": "user",
                "caller": caller(),
                "operation": "pw6ynh4b8sge2jux5mkc",
                "generation": 3,
                "detail": null,
                "took_ms": 384,
                "bytes": 96_468_992
            }),
        ),
        (
            "Operation",
            json!({
                "id": "pw6ynh4b8sge2jux5mkc",
                "kind": "suspend",
                "sandbox": "kq3v9xw2mzc7hf5ra8td",
                "initiator": "user",
                "caller": caller(),
                "status": "completed",
                "started_at": "2026-11-22T09:41:07.028Z",
                "deadline": "2026-11-22T09:43:07.028Z",
                "ended_at": "2026-11-22T09:41:07.412Z",
                "code": null,
                "reason": null
            }),
        ),
        (
            "Volume",
            json!({
                "id": "vh8tq2nwc5xk9rbz3yme",
                "name": "models",
                "size_bytes": 10_737_418_240_u64,
                "used_bytes": 2_415_919_104_u64,
                "writers": "one",
                "health": "mounted",
                "problem": null,
                "attached_to": ["agent-7 (running)"],
                "created_at": "2026-11-20T16:02:11.094Z"
            }),
        ),
    ]
}

fn caller() -> Value {
    json!({ "door": "api", "credential": "api_key", "key": "ak3x8wq2nv7mzt5hc9rb", "key_name": "ci" })
}

fn sandbox() -> Value {
    json!({
        "id": "kq3v9xw2mzc7hf5ra8td",
        "name": "agent-7",
        "project": "local",
        "state": "suspended",
        "residence": "evicted",
        "paused_for_disk": false, "revision": 9,
        "unreachable": null,
        "suspend_failures": null,
        "generation": 3,
        "restored": "memory",
        "restored_generation": 2,
        "image": "0b6a27fd2c0df1eb25a0f2f5d7bd8e4f4cc2e02dbd29e9ab5f3a3e2c5e8f7d41",
        "start": false,
        "snapshot": null,
        "source": null,
        "rewound_to": null,
        "resources": {
            "cpu_millis": 2000,
            "memory_bytes": 1_073_741_824,
            "disk_bytes": 4_294_967_296_u64,
            "processes": 512
        },
        "egress": { "allow": ["pypi.org", "files.pythonhosted.org"] },
        "env": ["LANG"],
        "secrets": [],
        "on_timeout": "suspend",
        "on_suspend_failure": "keep",
        "suspendable": true,
        "wake": "traffic",
        "port_access": "public",
        "port_host": null,
        "port_rules": {"8080": {"access": "private"}},
        "timeout_secs": null,
        "idle_timeout_secs": 600.0,
        "timeout_after_wake_secs": null,
        "max_run_secs": null,
        "holds": [],
        "keep_generations": 1,
        "on_unrestorable": "fail",
        "older_images": [],
        "checkpoints": { "every_secs": 900.0, "kind": "filesystem", "keep": "3,24x1h,7x1d" },
        "volumes": [
            { "volume": "vh8tq2nwc5xk9rbz3yme", "path": "/models", "read_only": true, "subpath": null }
        ],
        "pool": null,
        "waits_in_pool": false,
        "labels": { "team": "research" },
        "expires_at": null,
        "created_at": "2026-11-22T09:30:00.125Z",
        "created_by": caller(),
        "last_active_at": "2026-11-22T09:31:06.992Z",
        "running_since": null,
        "last_started_at": "2026-11-22T09:31:02.412Z",
        "sleep_image": { "generation": 3, "bytes": 96_468_992, "taken_at": "2026-11-22T09:41:07.028Z", "keeps": "memory" },
        "operation": null,
        "cause": null,
        "terminated_at": null
    })
}

fn snapshot() -> Value {
    json!({
        "id": "sn5bq8rkx2wdm7tzc4hv",
        "name": "deps:v2",
        "kind": "memory",
        "project": "local",
        "source": "kq3v9xw2mzc7hf5ra8td",
        "generation": 3,
        "parent": null,
        "image": "0b6a27fd2c0df1eb25a0f2f5d7bd8e4f4cc2e02dbd29e9ab5f3a3e2c5e8f7d41",
        "resources": {
            "cpu_millis": 2000,
            "memory_bytes": 1_073_741_824,
            "disk_bytes": 4_294_967_296_u64,
            "processes": 512
        },
        "inherited": {
            "egress": { "allow": ["pypi.org", "files.pythonhosted.org"] },
            "port_access": "public",
            "port_host": null,
            "port_rules": {},
            "start": false
        },
        "created_at": "2026-11-22T09:36:40.317Z",
        "bytes": 94_371_840,
        "alone_bytes": 94_371_840,
        "shared_bytes": 0,
        "shares_data": false,
        "held_by": [],
        "status": "completed",
        "reason": null,
        "code": null,
        "labels": { "step": "deps-installed" },
        "expires_at": null,
        "goes_when_free": false,
        "made_by": "request"
    })
}
