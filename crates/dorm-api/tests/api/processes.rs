use dorm_http::bodies::{RESPONSES_BYTES, Share};
use serde_json::{Value, json};

use crate::world::{Sse, World, eventually};

#[tokio::test]
async fn a_command_is_run_to_its_end() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/exec");
    for (body, exit, stdout, stderr) in [
        (json!({"argv": ["echo", "hello", "world"]}), 0, "hello world\n", ""),
        (json!({"argv": ["false"]}), 1, "", ""),
        (json!({"shell": "echo one; exit 3"}), 3, "one\n", ""),
        (json!({"shell": "echo $A", "env": {"A": "from env"}}), 0, "from env\n", ""),
        (json!({"argv": ["pwd"], "cwd": "/etc"}), 0, "/etc\n", ""),
        (json!({"argv": ["cat"], "stdin": "in and out"}), 0, "in and out", ""),
        (json!({"argv": ["cat"]}), 0, "", ""),
        (json!({"shell": "nonsense"}), 127, "", "sh: 1: nonsense: not found\n"),
    ] {
        let answer = world.post(&path, body.clone()).await;
        assert_eq!(answer["exit_code"], exit, "{body}: {answer}");
        assert_eq!((&answer["stdout"], &answer["stderr"]), (&json!(stdout), &json!(stderr)), "{body}");
        assert_eq!((&answer["timed_out"], &answer["signal"]), (&json!(false), &Value::Null), "{body}");
    }
}

#[tokio::test]
async fn output_that_is_not_text_comes_as_base64() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let body = json!({"argv": ["cat"], "stdin": {"base64": "/wD+"}});
    let answer = world.post(&format!("/v1/sandboxes/{id}/exec"), body).await;
    assert_eq!((&answer["stdout"], &answer["stdout_encoding"]), (&json!("/wD+"), &json!("base64")));
    assert_eq!(answer["stderr_encoding"], "utf8");
}

#[tokio::test]
async fn a_command_over_its_time_is_killed_and_the_answer_says_so() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let body = json!({"argv": ["sleep", "3600"], "timeout_secs": 0.05});
    let answer = world.post(&format!("/v1/sandboxes/{id}/exec"), body.clone()).await;
    assert_eq!((&answer["signal"], &answer["timed_out"]), (&json!(9), &json!(true)), "{answer}");
    let request = world.request("POST", &format!("/v1/sandboxes/{id}/exec")).json(&body);
    let last = world.events_of(request).await.rest().await.pop().unwrap();
    assert_eq!(last.kind, "exit");
    assert_eq!(last.data, json!({"exit_code": null, "signal": 9, "timed_out": true}));
}

#[tokio::test]
async fn long_output_is_cut_and_the_answer_says_how_much() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let input = "0123456789abcdef".repeat(50_000);
    let files = format!("/v1/sandboxes/{id}/files?path=/long");
    world.request("PUT", &files).body(input.repeat(8)).send().await.unwrap().error_for_status().unwrap();
    let answer = world.post(&format!("/v1/sandboxes/{id}/exec"), json!({"argv": ["cat", "/long"]})).await;
    let kept = answer["stdout"].as_str().unwrap().len();
    assert_eq!(kept, 4 << 20);
    assert_eq!(answer["stdout_truncated_bytes"].as_u64().unwrap(), (input.len() * 8 - kept) as u64);
    assert!(input.repeat(8).starts_with(answer["stdout"].as_str().unwrap()));
}

#[tokio::test]
async fn results_from_sandboxes_take_a_limited_amount_of_memory_together() {
    const LINES: usize = 2000;
    let world = World::new().await;
    let id = world.sandbox().await;
    let contents = format!("needle {}\n", "x".repeat(500)).repeat(LINES);
    let files = format!("/v1/sandboxes/{id}/files");
    let put = world.request("PUT", &format!("{files}?path=/work/long")).body(contents.clone());
    put.send().await.unwrap().error_for_status().unwrap();
    let exec = async |argv: Value| world.post(&format!("/v1/sandboxes/{id}/exec"), json!({ "argv": argv })).await;
    let grep = format!("{files}/grep?path=/work&pattern=needle&limit=10000");
    // The first bytes of each response are free.
    let all = RESPONSES_BYTES + (64 << 10);
    let mut others = Share::of_response();
    others.hold(all).unwrap();
    // The command has run, so its result is shorter, and says so.
    let answer = exec(json!(["cat", "/work/long"])).await;
    let kept = answer["stdout"].as_str().unwrap();
    assert!((1..=64 << 10).contains(&kept.len()) && contents.starts_with(kept), "{} bytes", kept.len());
    assert_eq!(answer["stdout_truncated_bytes"], contents.len() - kept.len());
    let (status, answer) = world.call("GET", &grep, Value::Null).await;
    assert_eq!((status, &answer["code"]), (503, &json!("unavailable")), "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("memory for responses, which is 128 MiB"), "{answer}");
    assert_eq!(exec(json!(["echo", "small"])).await["stdout"], "small\n");
    assert_eq!(world.get(&format!("{files}/find?path=/work")).await["files"].as_array().unwrap().len(), 1);
    drop(others);
    assert_eq!(exec(json!(["cat", "/work/long"])).await["stdout"], contents);
    assert_eq!(world.get(&grep).await["lines"].as_array().unwrap().len(), LINES);
    eventually("the responses give their shares back", || async { Share::of_response().hold(all).is_ok() }).await;
}

fn text(events: &[Sse]) -> String {
    events.iter().filter(|event| event.kind == "stdout").map(|event| event.data["data"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_command_can_be_followed() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let request = world.request("POST", &format!("/v1/sandboxes/{id}/exec"));
    let events =
        world.events_of(request.json(&json!({"shell": "echo a; nonsense; echo b; exit 4"}))).await.rest().await;
    assert_eq!(events[0].kind, "started");
    assert!(events[0].data["process"].is_u64());
    assert_eq!(text(&events), "a\nb\n");
    let stderr = events.iter().find(|event| event.kind == "stderr").unwrap();
    assert_eq!((&stderr.data["offset"], &stderr.data["encoding"]), (&json!(0), &json!("utf8")));
    let last = events.last().unwrap();
    assert_eq!((last.kind.as_str(), &last.data["exit_code"]), ("exit", &json!(4)));
}

#[tokio::test]
async fn a_process_is_found_fed_and_waited_for() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let process = world.start(&id, json!({"argv": ["cat"], "stdin": "pipe", "label": "mine", "env": {"A": "1"}})).await;
    let path = format!("/v1/sandboxes/{id}/processes");
    let found = world.get(&format!("{path}/{process}")).await;
    assert_eq!((&found["argv"], &found["label"], &found["exit"]), (&json!(["cat"]), &json!("mine"), &Value::Null));
    assert_eq!(found["env"], json!(["A"]));
    assert_eq!(world.get(&path).await["processes"], json!([found]));
    for chunk in ["hello ", "world"] {
        let sent = world.request("POST", &format!("{path}/{process}/stdin")).body(chunk).send().await.unwrap();
        let answer: Value = serde_json::from_str(&sent.text().await.unwrap()).unwrap();
        assert_eq!(answer["bytes"], chunk.len());
    }
    for _ in 0..2 {
        assert_eq!(world.call("POST", &format!("{path}/{process}/stdin/close"), Value::Null).await.0, 204);
    }
    let exit = world.get(&format!("{path}/{process}/wait")).await;
    assert_eq!(exit["exit_code"], 0);
    let events = world.events(&format!("{path}/{process}/output")).await.rest().await;
    assert_eq!(text(&events), "hello world");
    assert_eq!(world.get(&format!("{path}/{process}")).await["stdout_bytes"], 11);
}

#[tokio::test]
async fn a_signal_ends_a_process() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let process = world.start(&id, json!({"argv": ["sleep", "3600"]})).await;
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    let body = json!({"signal": 15, "target": "group"});
    assert_eq!(world.call("POST", &format!("{path}/signal"), body.clone()).await.0, 204);
    assert_eq!(world.get(&format!("{path}/wait")).await, json!({"exit_code": null, "signal": 15, "timed_out": false}));
    assert_eq!(world.call("POST", &format!("{path}/signal"), body).await.0, 404);
    let (status, _) = world.call("POST", &format!("{path}/resize"), json!({"rows": 1, "cols": 2})).await;
    assert!(status == 404 || status == 409, "{status}");
}

#[tokio::test]
async fn an_output_continues_from_the_last_event_without_gap_or_repetition() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let process = world.start(&id, json!({"argv": ["counter", "n"], "stdin": "pipe"})).await;
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    let feed = async |lines: usize| {
        let body = "\n".repeat(lines);
        world.request("POST", &format!("{path}/stdin")).body(body).send().await.unwrap().error_for_status().unwrap();
    };
    let mut all = String::new();
    let mut last: Option<String> = None;
    for _ in 0..5 {
        feed(3).await;
        let mut request = world.request("GET", &format!("{path}/output"));
        if let Some(id) = &last {
            request = request.header("last-event-id", id);
        }
        let mut events = world.events_of(request).await;
        let had = all.lines().count();
        while all.lines().count() < had + 3 {
            let event = events.next().await.unwrap();
            all.push_str(event.data["data"].as_str().unwrap());
            last = event.id;
        }
    }
    world.call("POST", &format!("{path}/stdin/close"), Value::Null).await;
    let whole = world.events(&format!("{path}/output?stdout=0")).await.rest().await;
    assert_eq!(text(&whole), all);
    let half = all.len() as u64 / 2;
    let from_half = world.events(&format!("{path}/output?stdout={half}")).await.rest().await;
    assert_eq!(text(&from_half), all[usize::try_from(half).unwrap()..]);
}

#[tokio::test]
async fn both_outputs_come_in_one_order_with_their_times() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let script = "echo a; sleep 1; nonsense; sleep 1; echo b";
    let process = world.start(&id, json!({"shell": script})).await;
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    world.get(&format!("{path}/wait")).await;
    let events = world.events(&format!("{path}/output")).await.rest().await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["stdout", "stderr", "stdout", "exit"]);
    let time = |event: &Sse| event.data["read_at"].as_str().unwrap().to_owned();
    assert!(time(&events[0]) < time(&events[1]) && time(&events[1]) < time(&events[2]));
    let after = events[0].id.clone().unwrap();
    let request = world.request("GET", &format!("{path}/output")).header("last-event-id", after);
    let rest = world.events_of(request).await.rest().await;
    assert_eq!(
        rest.iter().map(|event| &event.data).collect::<Vec<_>>(),
        events[1..].iter().map(|event| &event.data).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_process_with_open_input_is_killed_at_its_time_limit() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let process = world.start(&id, json!({"argv": ["cat"], "stdin": "pipe", "timeout_secs": 1.0})).await;
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    world.request("POST", &format!("{path}/stdin")).body("hello").send().await.unwrap().error_for_status().unwrap();
    let timed_out = json!({"exit_code": null, "signal": 9, "timed_out": true});
    assert_eq!(world.get(&format!("{path}/wait")).await, timed_out);
    assert_eq!(world.get(&path).await["exit"], timed_out);
    let events = world.events(&format!("{path}/output")).await.rest().await;
    assert_eq!((text(&events).as_str(), &events.last().unwrap().data), ("hello", &timed_out));
}

#[tokio::test]
async fn a_command_may_keep_its_input_open_but_not_also_have_all_of_it() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let exec = format!("/v1/sandboxes/{id}/exec");
    let (status, problem) = world.call("POST", &exec, json!({"argv": ["cat"], "stdin": "x", "stdin_open": true})).await;
    assert_eq!((status, problem["code"].as_str().unwrap()), (400, "invalid_argument"));
    let request = world.request("POST", &exec).json(&json!({"argv": ["cat"], "stdin_open": true, "timeout_secs": 60}));
    let mut events = world.events_of(request).await;
    let process = events.next().await.unwrap().data["process"].clone();
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    for chunk in ["one", "two"] {
        world.request("POST", &format!("{path}/stdin")).body(chunk).send().await.unwrap().error_for_status().unwrap();
        assert_eq!(events.next().await.unwrap().data["data"], chunk);
    }
    assert_eq!(world.call("POST", &format!("{path}/stdin/close"), Value::Null).await.0, 204);
    let exit = json!({"exit_code": 0, "signal": null, "timed_out": false});
    assert_eq!(events.next().await.unwrap().data, exit);
}

#[tokio::test]
async fn output_can_be_read_without_following() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let process = world.start(&id, json!({"shell": "echo hello; sleep 3600"})).await;
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    crate::world::eventually("it has said hello", async || world.get(&path).await["stdout_bytes"] == 6).await;
    let events = world.events(&format!("{path}/output?follow=false")).await.rest().await;
    assert_eq!(text(&events), "hello\n");
    assert!(world.events(&format!("{path}/output?follow=false&stdout=6")).await.rest().await.is_empty());
}

#[tokio::test]
async fn what_is_no_longer_kept_is_reported_as_lost() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let body = json!({"shell": "cat /etc/long; sleep 3600", "output_kept_bytes": 1000});
    let files = format!("/v1/sandboxes/{id}/files?path=/etc/long");
    world.request("PUT", &files).body("x".repeat(5000)).send().await.unwrap().error_for_status().unwrap();
    let process = world.start(&id, body).await;
    let path = format!("/v1/sandboxes/{id}/processes/{process}");
    crate::world::eventually("all is written", async || world.get(&path).await["stdout_bytes"] == 5000).await;
    let events = world.events(&format!("{path}/output?follow=false")).await.rest().await;
    assert_eq!(
        (events[0].kind.as_str(), &events[0].data),
        ("lost", &json!({"stream": "stdout", "offset": 0, "bytes": 4000}))
    );
    assert_eq!(text(&events).len(), 1000);
}

#[tokio::test]
async fn a_reader_that_stands_still_holds_up_nobody_else() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let request = world.request("POST", &format!("/v1/sandboxes/{id}/exec")).json(&json!({"argv": ["yes"]}));
    let mut stuck = world.events_of(request).await;
    assert_eq!(stuck.next().await.unwrap().kind, "started");
    for round in 0..20 {
        let answer =
            world.post(&format!("/v1/sandboxes/{id}/exec"), json!({"argv": ["echo", round.to_string()]})).await;
        assert_eq!(answer["stdout"], format!("{round}\n"));
    }
    assert!(matches!(stuck.next().await, Some(Sse { kind, .. }) if kind == "stdout"));
}

#[tokio::test]
async fn a_command_continues_when_its_caller_leaves_and_its_limit_holds() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let body = json!({"argv": ["sleep", "3600"], "timeout_secs": 0.5});
    let mut events = world.events_of(world.request("POST", &format!("/v1/sandboxes/{id}/exec")).json(&body)).await;
    let process = events.next().await.unwrap().data["process"].as_u64().unwrap();
    drop(events);
    let exit = world.get(&format!("/v1/sandboxes/{id}/processes/{process}/wait")).await;
    assert_eq!(exit["signal"], 9);
}

#[tokio::test]
async fn processes_are_found_by_label_and_pid_and_killed() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let processes = format!("/v1/sandboxes/{id}/processes");
    let one = world.start(&id, json!({"argv": ["sleep", "3600"], "label": "one"})).await;
    let other = world.start(&id, json!({"argv": ["sleep", "3600"], "label": "other"})).await;
    let found = async |query: String| {
        let list = world.get(&format!("{processes}?{query}")).await;
        list["processes"].as_array().unwrap().iter().map(|one| one["process"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let pid = world.get(&format!("{processes}/{other}")).await["pid"].to_string();
    assert_eq!(found("label=one".to_owned()).await, [one]);
    assert_eq!(found(format!("pid={pid}")).await, [other]);
    assert!(found(format!("pid={pid}&label=one")).await.is_empty());
    let kill = format!("{processes}/{other}/kill");
    assert_eq!(world.post(&kill, Value::Null).await, json!({"killed": 1}));
    assert_eq!(world.get(&format!("{processes}/{other}/wait")).await["signal"], 9);
    assert_eq!(world.post(&kill, Value::Null).await, json!({"killed": 0}));
    assert!(found(format!("pid={pid}")).await.is_empty());
    assert_eq!(found("label=other".to_owned()).await, [other]);
}
