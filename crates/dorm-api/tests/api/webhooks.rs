//! Webhooks: events are sent in order, signed, until they are accepted, and again when that is
//! requested.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_store::RowKind;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::world::World;

struct Receiver {
    url: String,
    taken: mpsc::UnboundedReceiver<(HeaderMap, Vec<u8>)>,
    /// This many requests are refused first.
    refuse: Arc<AtomicUsize>,
}

impl Receiver {
    async fn new() -> Self {
        let (sender, taken) = mpsc::unbounded_channel();
        let refuse = Arc::new(AtomicUsize::new(0));
        let refusing = refuse.clone();
        let handler = move |headers: HeaderMap, body: axum::body::Bytes| {
            let (sender, refusing) = (sender.clone(), refusing.clone());
            async move {
                let refused = refusing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if refused.is_ok() {
                    return StatusCode::SERVICE_UNAVAILABLE;
                }
                sender.send((headers, body.to_vec())).unwrap();
                StatusCode::NO_CONTENT
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", post(handler))).await });
        Self { url, taken, refuse }
    }

    async fn next(&mut self, secret: &str) -> Value {
        let (headers, body) = tokio::time::timeout(crate::world::PATIENCE, self.taken.recv()).await.unwrap().unwrap();
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{}.{}.", text("webhook-id"), text("webhook-timestamp")).as_bytes());
        mac.update(&body);
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        assert_eq!(text("webhook-signature"), expected);
        serde_json::from_slice(&body).unwrap()
    }
}

#[tokio::test]
async fn every_event_comes_once_in_order_and_signed_however_often_it_is_refused_first() {
    let world = World::new().await;
    let mut receiver = Receiver::new().await;
    receiver.refuse.store(2, Ordering::SeqCst);
    let hook = world.post("/v1/webhooks", json!({"url": receiver.url})).await;
    let secret = hook["secret"].as_str().unwrap().to_owned();
    let sandbox = world.named("web").await;
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    let mut kinds = Vec::new();
    for number in 1..=4 {
        let event = receiver.next(&secret).await;
        assert_eq!((&event["number"], &event["sandbox"]), (&json!(number), &json!(sandbox)));
        kinds.push(event["kind"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds, ["created", "started", "suspending", "suspended"]);
    let listed = world.get("/v1/webhooks").await;
    assert!(listed["webhooks"][0].get("secret").is_none(), "{listed}");

    let id = hook["id"].as_str().unwrap();
    world.post(&format!("/v1/webhooks/{id}/replay"), json!({"after": 2})).await;
    assert_eq!(receiver.next(&secret).await["number"], 3);
    assert_eq!(receiver.next(&secret).await["number"], 4);
    let gone = world.call("DELETE", &format!("/v1/webhooks/{id}"), Value::Null).await;
    assert_eq!(gone.0, 204);
    assert_eq!(world.get("/v1/webhooks").await, json!({"webhooks": [], "next": null}));
}

/// A webhook still gets its events after the store has failed, first for the list of webhooks, then
/// for events.
async fn continues_after_errors() {
    let world = World::new().await;
    let mut receiver = Receiver::new().await;
    let hook = world.post("/v1/webhooks", json!({"url": receiver.url})).await;
    let secret = hook["secret"].as_str().unwrap().to_owned();
    world.named("web").await;
    assert_eq!(receiver.next(&secret).await["number"], 1);
    assert_eq!(receiver.next(&secret).await["number"], 2);
    for (number, verb) in [(3, "suspend"), (5, "resume")] {
        world.store.fail_reads(3);
        world.post(&format!("/v1/sandboxes/web/{verb}"), Value::Null).await;
        for number in number..number + 2 {
            assert_eq!(receiver.next(&secret).await["number"], number);
        }
        assert_eq!(world.store.reads_to_fail(), 0);
    }
}

#[tokio::test]
async fn a_store_that_fails_for_a_while_does_not_end_a_webhook() {
    continues_after_errors().await;
}

#[tokio::test]
async fn a_webhook_that_is_made_while_the_store_fails_is_sent_what_happens() {
    let world = World::new().await;
    let mut receiver = Receiver::new().await;
    world.store.fail_reads(2);
    let hook = world.post("/v1/webhooks", json!({"url": receiver.url, "after": 0})).await;
    let secret = hook["secret"].as_str().unwrap().to_owned();
    let listed = async {
        while world.store.reads_to_fail() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::world::PATIENCE, listed).await.expect("the webhooks are listed again");
    world.named("web").await;
    assert_eq!(receiver.next(&secret).await["number"], 1);
}

/// Shows that the check above finds the planted bug.
#[tokio::test]
async fn a_planted_webhook_task_that_dies_is_found() {
    dorm_steps::planted::plant(dorm_steps::planted::Planted::WebhookTaskDead);
    let told = tokio::time::timeout(std::time::Duration::from_secs(20), continues_after_errors()).await;
    assert!(told.is_err(), "the planted fault was not found");
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_passed_over_and_a_dead_receiver_keeps_no_other_waiting() {
    let world = World::new().await;
    let mut receiver = Receiver::new().await;
    // No program listens on this port.
    world.post("/v1/webhooks", json!({"url": "http://127.0.0.1:9/hook", "after": 0})).await;
    world.named("web").await;
    world.store.spoil(RowKind::Event, "1", "{");
    let hook = world.post("/v1/webhooks", json!({"url": receiver.url, "after": 0})).await;
    let secret = hook["secret"].as_str().unwrap().to_owned();
    assert_eq!(receiver.next(&secret).await["number"], 2);
}

#[tokio::test]
async fn a_webhook_may_want_some_kinds_only_and_from_the_beginning() {
    let world = World::new().await;
    let mut receiver = Receiver::new().await;
    world.named("web").await;
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    let asked = json!({"url": receiver.url, "kinds": ["suspended", "resumed"], "after": 0});
    let hook = world.post("/v1/webhooks", asked).await;
    let secret = hook["secret"].as_str().unwrap().to_owned();
    assert_eq!(receiver.next(&secret).await["kind"], "suspended");
    world.post("/v1/sandboxes/web/resume", Value::Null).await;
    assert_eq!(receiver.next(&secret).await["kind"], "resumed");
}

#[tokio::test]
async fn the_disk_and_the_figures_are_reported() {
    let world = World::new().await;
    world.named("web").await;
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    let told = world.get("/v1/gc").await;
    let items = told["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{told}");
    assert!(items.iter().all(|item| item["verdict"] == "kept"), "{told}");
    assert_eq!(world.post("/v1/gc", Value::Null).await, json!({"items": []}));
    let figures = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    for line in ["dorm_sandboxes{state=\"suspended\"} 1", "dorm_operations_total{", "dorm_disk_free_bytes "] {
        assert!(figures.contains(line), "{line}: {figures}");
    }
}

#[tokio::test]
async fn a_webhook_reaches_no_address_that_is_not_public_unless_it_is_allowed() {
    let world = World::with_settings(dorm_service::Settings::default()).await;
    let receiver = Receiver::new().await;
    let port = receiver.url.rsplit_once(':').unwrap().1.trim_end_matches("/hook").to_owned();
    let addresses = [
        receiver.url.clone(),
        format!("http://127.1:{port}/hook"),
        format!("http://[::ffff:127.0.0.1]:{port}/hook"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://10.0.0.1/".to_owned(),
    ];
    for url in &addresses {
        let (status, answer) = world.call("POST", "/v1/webhooks", json!({ "url": url })).await;
        assert_eq!((status, &answer["code"]), (400, &json!("invalid_argument")), "{url}: {answer}");
        assert!(answer["next_step"].as_str().unwrap().contains("--allow-network"), "{answer}");
    }
    // A name is looked up when an event is sent, and a URL that was recorded earlier is checked
    // again.
    let named = world.post("/v1/webhooks", json!({ "url": format!("http://localhost:{port}/hook"), "after": 0 })).await;
    let recorded = world.service.add_webhook(receiver.url.clone(), Vec::new(), Some(0)).await.unwrap();
    world.sandbox().await;
    let refused = async || {
        let text = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with("dorm_webhooks_total") && line.contains("refused"));
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).unwrap_or(0.0)
    };
    crate::world::eventually("both were attempted, and again", async || refused().await >= 4.0).await;
    let list = world.get("/v1/webhooks").await;
    for id in [named["id"].as_str().unwrap(), recorded.id.as_str()] {
        let found = list["webhooks"].as_array().unwrap().iter().find(|webhook| webhook["id"] == id).unwrap();
        assert_eq!(found["delivered"], 0, "{found}");
    }
    let mut receiver = receiver;
    assert!(receiver.taken.try_recv().is_err(), "the receiver was sent something");
}
