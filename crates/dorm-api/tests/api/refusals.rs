use serde_json::{Value, json};

use crate::world::{World, read};

async fn check(world: &World, method: &str, path: &str, body: Value, expected: (u16, &str, &str)) {
    let (status, answer) = world.call(method, path, body.clone()).await;
    let (code, message) = (&answer["code"], answer["detail"].as_str().unwrap_or_default());
    let (expected_status, expected_code, part) = expected;
    assert_eq!(
        (status, code.as_str().unwrap_or_default()),
        (expected_status, expected_code),
        "{method} {path} {body}: {answer}"
    );
    assert!(message.contains(part), "{method} {path} {body}: '{message}' does not hold '{part}'");
    assert!(answer["next_step"].is_string(), "{answer}");
    assert_eq!((&answer["status"], &answer["type"]), (&json!(status), &json!(format!("/errors/{expected_code}"))));
}

#[tokio::test]
async fn an_error_is_a_problem_of_rfc_9457() {
    let world = World::new().await;
    let response = world.request("GET", "/v1/sandboxes/nobody").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let expected = json!({
        "type": "/errors/not_found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no sandbox 'nobody'",
        "code": "not_found",
        "next_step": "list the existing sandboxes",
    });
    assert_eq!(read(response).await, (404, expected));
}

#[tokio::test]
async fn bad_requests_are_refused_by_name_and_change_nothing() {
    let world = World::new().await;
    let invalid = |part| (400, "invalid_argument", part);
    for (body, expected) in [
        (json!({}), invalid("exactly one of image, snapshot and template")),
        (json!({"image": "base", "snapshot": "abcdefghij2345678901"}), invalid("exactly one of")),
        (json!({"image": "base", "nmae": "x"}), invalid("nmae")),
        (json!({"image": "base", "resources": {"cpus": 1}}), invalid("cpus")),
        (json!({"image": "base", "resources": {"memory_bytes": 1}}), invalid("memory_bytes is 1")),
        (json!({"image": "base", "name": "Not Legal"}), invalid("Not Legal")),
        (json!({"image": "base", "egress": "private"}), invalid("private")),
        (
            json!({"image": "base", "egress": {"allow": ["10.0.0.0/8", "exa mple.org"]}}),
            invalid("'exa mple.org' is not a valid egress entry"),
        ),
        (
            json!({"image": "base", "egress": {"ordered": {"rules": [], "default": "public", "headers": [
                {"host": "a.test", "name": "Authorization", "value": "Bearer hunter2"}
            ]}}}),
            invalid("'a.test: Authorization' must contain the name of exactly one secret"),
        ),
        (
            json!({"image": "base", "egress": {"ordered": {"rules": [], "headers": [
                {"host": "a.test", "name": "Authorization", "value": "{TOKEN}"}
            ]}}}),
            invalid("the egress rules do not allow its host"),
        ),
        (json!({"image": "base", "on_timeout": "suspend"}), invalid("not suspendable")),
        (json!({"image": "base", "timeout_secs": 0}), invalid("timeout_secs is 0")),
        (json!({"image": "base", "idle_timeout_secs": -1.5}), invalid("idle_timeout_secs is -1.5")),
        (json!({"image": "base", "timeout_secs": 1e300}), invalid("timeout_secs")),
        (json!({"image": "base", "max_run_secs": 0}), invalid("max_run_secs is 0")),
        (json!({"image": "base", "keep_generations": 0}), invalid("keep_generations is 0")),
        (json!({"image": "base", "checkpoints": {}}), invalid("every_secs of checkpoints is missing")),
        (json!({"image": "base", "checkpoints": {"every_secs": 9}}), invalid("it must be between 10 and 31536000")),
        (
            json!({"image": "base", "checkpoints": {"every_secs": 60, "keep": "3,4"}}),
            invalid("'4' gives the number of newest snapshots a second time"),
        ),
        (json!({"image": "base", "checkpoints": {"every_secs": 60, "kind": "files"}}), invalid("files")),
        (json!({"image": "base", "checkpoints": {"every_secs": 60, "off": true}}), invalid("off")),
        (json!({"image": "base", "on_unrestorable": "filesystem"}), invalid("no files apart from memory")),
        (json!({"image": "base", "on_unrestorable": "guess"}), invalid("guess")),
        (json!({"image": "base", "env": {"A=B": "c"}}), invalid("A=B")),
        (json!({"image": 7}), invalid("line 1")),
        (json!({"snapshot": "nonsense"}), invalid("nonsense")),
        (json!({"snapshot": "abcdefghij2345678901"}), (404, "not_found", "abcdefghij2345678901")),
        (json!({"image": "absent"}), (404, "not_found", "absent")),
    ] {
        check(&world, "POST", "/v1/sandboxes", body, expected).await;
    }
    assert_eq!(world.get("/v1/sandboxes").await, json!({"sandboxes": [], "next": null}));
}

#[tokio::test]
async fn what_is_not_there_or_does_not_fit_is_refused() {
    let world = World::new().await;
    let id = world.sandbox().await;
    world.named("web").await;
    let asleep = world.named("asleep").await;
    world.post("/v1/sandboxes/asleep/suspend", Value::Null).await;
    let of = |rest: &str| format!("/v1/sandboxes/{id}{rest}");
    let nobody = "/v1/sandboxes/nobody";
    let missing = |part| (404, "not_found", part);
    let invalid = |part| (400, "invalid_argument", part);
    let null = Value::Null;
    for (method, path, body, expected) in [
        ("GET", nobody.to_owned(), null.clone(), missing("nobody")),
        ("POST", format!("{nobody}/suspend"), null.clone(), missing("nobody")),
        ("POST", format!("{nobody}/exec"), json!({"argv": ["true"]}), missing("nobody")),
        ("GET", "/v1/sandboxes/%FF".to_owned(), null.clone(), invalid("UTF-8")),
        ("POST", of("/suspend"), null.clone(), (409, "conflict", "no name")),
        ("POST", of("/clone"), json!({"name": "web"}), (409, "conflict", "taken")),
        ("POST", of("/clone"), json!({"nam": "x"}), invalid("nam")),
        ("POST", of("/timeouts"), json!({"timeout_secs": 0}), invalid("timeout_secs")),
        ("POST", of("/egress"), json!({}), invalid("egress")),
        ("POST", of("/egress"), json!({"egress": "opened"}), invalid("opened")),
        ("POST", of("/egress"), json!({"egress": "none"}), (409, "conflict", "cannot be removed")),
        ("POST", of("/egress"), json!({"egress": {"allow": ["::/0"]}}), invalid("'::/0'")),
        ("POST", of("/egress"), json!({"egress": {"ordered": {"rules": [{"deny": "x"}]}}}), invalid("'x'")),
        ("POST", of("/egress"), json!({"egress": {"ordered": {"rules": [{"drop": "1.1.1.1"}]}}}), invalid("drop")),
        ("POST", of("/egress"), json!({"egress": {"ordered": {"rules": [], "defualt": "deny"}}}), invalid("defualt")),
        (
            "POST",
            of("/egress"),
            json!({"egress": {"ordered": {"rules": [{"allow": "1.1.0.0/16"}, {"deny": "1.1.1.1"}]}}}),
            invalid("'deny 1.1.1.1' can never match"),
        ),
        ("POST", format!("{nobody}/egress"), json!({"egress": "closed"}), missing("nobody")),
        ("POST", of("/holds"), json!({"ttl_secs": 0, "reason": "x"}), invalid("ttl_secs is 0")),
        ("POST", of("/holds"), json!({"ttl_secs": 5}), invalid("reason")),
        ("POST", of("/holds"), json!({"ttl_secs": 5, "reason": ""}), invalid("1 to 200")),
        ("POST", of("/holds"), json!({"ttl_secs": 5, "reason": "x", "renew": "y"}), invalid("'y' is not an id")),
        ("DELETE", of("/holds/nonsense"), null.clone(), invalid("'nonsense' is not an id")),
        ("POST", of("/retention"), json!({"keep_generations": 17}), invalid("keep_generations is 17")),
        ("POST", of("/checkpoints"), json!({}), invalid("the policy is empty")),
        ("POST", of("/checkpoints"), json!({"keep": "3"}), invalid("every_secs of checkpoints is missing")),
        ("POST", of("/checkpoints"), json!({"off": true, "keep": "3"}), invalid("off cannot be combined")),
        ("POST", of("/checkpoints"), json!({"every_secs": -1}), invalid("every_secs of checkpoints is -1")),
        ("POST", of("/checkpoints"), json!({"every_secs": 60, "keep": "9x5y"}), invalid("'9x5y' is neither")),
        ("POST", format!("{nobody}/checkpoints"), json!({"off": true}), missing("nobody")),
        ("GET", format!("{nobody}/why"), null.clone(), missing("nobody")),
        ("POST", "/v1/webhooks".to_owned(), json!({}), invalid("url")),
        ("POST", "/v1/webhooks".to_owned(), json!({"url": "https://x.test/"}), invalid("http://")),
        ("POST", "/v1/webhooks".to_owned(), json!({"url": "nonsense"}), invalid("nonsense")),
        ("POST", "/v1/webhooks".to_owned(), json!({"url": "http://x", "kinds": ["y"]}), invalid("'y' is not a kind")),
        ("POST", "/v1/webhooks/abcdefghij2345678901/replay".to_owned(), json!({"after": 0}), missing("abcdefghij")),
        ("DELETE", "/v1/webhooks/nonsense".to_owned(), null.clone(), invalid("nonsense")),
        ("POST", of("/exec"), json!({}), invalid("exactly one of argv")),
        ("POST", of("/exec"), json!({"argv": []}), invalid("exactly one of argv")),
        ("POST", of("/exec"), json!({"argv": ["a"], "shell": "b"}), invalid("exactly one of argv")),
        ("POST", of("/exec"), json!({"argv": ["a\u{0}"]}), invalid("zero byte")),
        ("POST", of("/exec"), json!({"argv": ["true"], "cwd": "relative"}), invalid("cwd")),
        ("POST", of("/exec"), json!({"argv": ["true"], "user": "a:b"}), invalid("a:b")),
        ("POST", of("/exec"), json!({"argv": ["true"], "stdin": {"base64": "%"}}), invalid("stdin is not base64")),
        ("POST", of("/exec"), json!({"argv": ["true"], "timeout_secs": -1}), invalid("timeout_secs")),
        ("POST", of("/exec"), json!({"argv": ["no-such-command"]}), invalid("no-such-command")),
        ("POST", of("/exec"), json!({"argv": ["true"], "checkpoint": "files"}), invalid("files")),
        ("POST", "/v1/sandboxes/asleep/exec".to_owned(), json!({"argv": ["true"]}), (409, "conflict", "suspended")),
        (
            "POST",
            "/v1/sandboxes/asleep/exec".to_owned(),
            json!({"argv": ["true"], "checkpoint": "memory"}),
            (409, "conflict", "suspended"),
        ),
        ("GET", "/v1/sandboxes/asleep/files?path=/".to_owned(), null.clone(), (409, "conflict", "suspended")),
        ("GET", of("/processes/77"), null.clone(), missing("77")),
        ("GET", of("/processes/x"), null.clone(), invalid("'x' is not a process")),
        ("GET", of("/processes/77/wait"), null.clone(), missing("77")),
        ("GET", of("/processes/77/output"), null.clone(), missing("77")),
        ("POST", of("/processes/77/signal"), json!({"signal": 15}), missing("77")),
        ("POST", of("/processes/77/signal"), json!({"signal": 99}), invalid("99")),
        ("POST", of("/processes/77/resize"), json!({"rows": 1}), invalid("cols")),
        ("GET", of("/files"), null.clone(), invalid("path")),
        ("GET", of("/files?path=relative"), null.clone(), invalid("relative")),
        ("GET", of("/files?path=/absent"), null.clone(), missing("/absent")),
        ("GET", of("/files?path=/etc"), null.clone(), invalid("directory")),
        ("GET", of("/files?path=/&x=1"), null.clone(), invalid("x")),
        ("PUT", of("/files?path=/a&mode=999"), null.clone(), invalid("mode '999'")),
        ("GET", of("/files/list?path=/&depth=0"), null.clone(), invalid("depth")),
        ("GET", of("/files/stat?path=/absent"), null.clone(), missing("/absent")),
        ("DELETE", of("/files?path=/absent"), null.clone(), missing("/absent")),
        ("POST", of("/files/rename"), json!({"from": "/absent", "to": "/b"}), missing("/absent")),
        ("POST", of("/files/rename"), json!({"from": "/etc", "to": "/b", "user": "root"}), invalid("user")),
        ("POST", of("/files/rename"), json!({"from": "/absent", "to": "/x/y", "parents": true}), missing("/absent")),
        ("GET", of("/files/stat?path=/x"), null.clone(), missing("/x")),
        ("POST", of("/files/mkdir"), json!({"path": "a"}), invalid("path")),
        ("POST", of("/files/mkdir"), json!({"path": "/etc", "exclusive": true}), (409, "conflict", "/etc")),
        ("PUT", of("/files?path=/a&append=true&offset=1"), null.clone(), invalid("append and offset")),
        ("PUT", of("/files?path=/a&in_place=false&offset=1"), null.clone(), invalid("in_place")),
        ("PUT", of("/files?path=/etc&in_place=true"), null.clone(), invalid("directory")),
        ("POST", of("/processes/77/kill"), null.clone(), missing("77")),
        ("POST", of("/watchers"), json!({"path": "/absent"}), missing("/absent")),
        ("POST", of("/watchers"), json!({"path": "a"}), invalid("path")),
        ("GET", of("/watchers/77/events"), null.clone(), missing("77")),
        ("GET", of("/watchers/x/events"), null.clone(), invalid("'x' is not a watcher")),
        ("GET", of("/watchers/77/events?limit=0"), null.clone(), invalid("limit")),
        ("DELETE", of("/watchers/77"), null.clone(), missing("77")),
        ("GET", of("/files/attributes?path=/absent"), null.clone(), missing("/absent")),
        (
            "POST",
            of("/files/attributes"),
            json!({"path": "/etc", "set": [{"name": "trusted.x", "value": ""}]}),
            invalid("trusted.x"),
        ),
        ("GET", of("/files/watch?path=/absent"), null.clone(), missing("/absent")),
        ("GET", of("/pty"), null.clone(), (426, "invalid_argument", "WebSocket")),
        ("GET", "/v1/sandboxes?state=asleep".to_owned(), null.clone(), invalid("asleep")),
        ("GET", "/v1/sandboxes?limit=0".to_owned(), null.clone(), invalid("limit")),
        ("GET", "/v1/sandboxes?after=x".to_owned(), null.clone(), invalid("'x'")),
        ("GET", "/v1/sandboxes?label=x".to_owned(), null.clone(), invalid("label")),
        ("GET", "/v1/sandboxes?sort=x".to_owned(), null.clone(), invalid("sort")),
        ("GET", "/v1/snapshots/x".to_owned(), null.clone(), missing("'x'")),
        ("DELETE", "/v1/snapshots/abcdefghij2345678901".to_owned(), null.clone(), missing("abcdefghij2345678901")),
        ("DELETE", "/v1/images/absent".to_owned(), null.clone(), missing("absent")),
        ("POST", "/v1/builds".to_owned(), json!({}), invalid("dockerfile")),
        ("POST", "/v1/builds".to_owned(), json!({"dockerfile": "FROM a\nEXPOSE 1\n"}), invalid("line 2")),
        ("POST", "/v1/builds".to_owned(), json!({"dockerfile": "FROM a\nCOPY x /\n"}), invalid("no context")),
        ("POST", "/v1/builds".to_owned(), json!({"from": "a", "steps": [{}]}), invalid("exactly one")),
        (
            "POST",
            "/v1/builds".to_owned(),
            json!({"from": "a", "steps": [{"run": "x", "user": "y"}]}),
            invalid("exactly one"),
        ),
        ("POST", "/v1/builds".to_owned(), json!({"from": "a", "step_timeout_secs": 1e6}), invalid("time limit")),
        ("POST", "/v1/builds".to_owned(), json!({"from": "a", "tag": "@b/c"}), invalid("@b")),
        ("POST", "/v1/builds".to_owned(), json!({"from": "a", "context": "x"}), invalid("not a hash")),
        ("POST", "/v1/builds".to_owned(), json!({"from": "a", "context": "a".repeat(64)}), missing("context")),
        ("POST", "/v1/builds".to_owned(), json!({"from": "a", "template": {"name": "X"}}), invalid("X")),
        ("GET", "/v1/builds/x".to_owned(), null.clone(), missing("'x'")),
        ("GET", "/v1/builds/abcdefghij2345678901/logs".to_owned(), null.clone(), missing("abcdefghij2345678901")),
        ("POST", "/v1/builds/abcdefghij2345678901/cancel".to_owned(), null.clone(), missing("abcdefghij2345678901")),
        ("PUT", "/v1/contexts/x".to_owned(), null.clone(), invalid("not a hash")),
        ("PUT", format!("/v1/contexts/{}", "a".repeat(64)), null.clone(), invalid("the uploaded context")),
        ("GET", format!("/v1/contexts/{}", "a".repeat(64)), null.clone(), missing("context")),
        ("POST", "/v1/templates".to_owned(), json!({"name": "a"}), invalid("exactly one")),
        ("POST", "/v1/templates".to_owned(), json!({"name": "a", "image": "b", "tags": ["/"]}), invalid("'/'")),
        ("POST", "/v1/templates".to_owned(), json!({"name": "a", "image": "absent"}), missing("absent")),
        ("POST", "/v1/templates/absent/tags".to_owned(), json!({"tags": ["x"]}), missing("absent")),
        ("DELETE", "/v1/templates/absent".to_owned(), null.clone(), missing("absent")),
        ("POST", "/v1/sandboxes".to_owned(), json!({"template": "absent:x"}), missing("absent")),
        ("DELETE", "/v1/images/base".to_owned(), null.clone(), (409, "conflict", &asleep)),
        ("POST", "/v1/images/import".to_owned(), json!({"path": "/etc"}), (403, "forbidden", "api.sock")),
        ("POST", "/v1/images/base/export".to_owned(), json!({"path": "/x"}), (403, "forbidden", "api.sock")),
        ("POST", "/v1/images/upload".to_owned(), null.clone(), invalid("import")),
        ("GET", "/v1/images/absent/download".to_owned(), null.clone(), missing("absent")),
        ("GET", "/v1/events?limit=5000".to_owned(), null.clone(), invalid("limit")),
        ("GET", "/v1/events?after=x".to_owned(), null.clone(), invalid("after")),
        ("GET", "/v1/events?sandbox=nobody".to_owned(), null.clone(), missing("nobody")),
        ("GET", "/v1/nothing".to_owned(), null.clone(), missing("/v1/nothing")),
        ("GET", "/".to_owned(), null.clone(), missing("'/'")),
        ("PATCH", "/v1/sandboxes".to_owned(), null.clone(), (405, "method_not_allowed", "PATCH")),
    ] {
        check(&world, method, &path, body, expected).await;
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_says_where_and_one_too_long_is_refused() {
    let world = World::new().await;
    let send = async |body: String| read(world.request("POST", "/v1/sandboxes").body(body).send().await.unwrap()).await;
    let (status, answer) = send("{\"image\": \"base\",\n \"name\": }".to_owned()).await;
    assert_eq!(status, 400);
    assert!(answer["detail"].as_str().unwrap().contains("line 2 column 10"), "{answer}");
    let (status, answer) = send(format!("{{\"image\": \"{}\"}}", "x".repeat(1 << 20))).await;
    assert_eq!((status, &answer["code"]), (413, &json!("invalid_argument")), "{answer}");
}
