//! Scripts of web pages: those of pages that the daemon was told of may call the API.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;

use crate::place::Place;

const PAGE: &str = "https://app.example.org";

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    value.unwrap_or_default()
}

#[tokio::test]
async fn a_page_whose_origin_was_given_may_call_the_api_with_a_key_and_no_other() {
    let place = Place::with(&["--cors-origin", PAGE, "--cors-origin", "http://localhost:5173"]);
    let daemon = place.daemon();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v1/sandboxes", daemon.address());
    let asks = |origin: &str| -> RequestBuilder {
        let request = client.request(Method::OPTIONS, &url).header("origin", origin);
        request
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type,idempotency-key")
    };
    for origin in [PAGE, "http://localhost:5173"] {
        let allowed = asks(origin).send().await.unwrap();
        assert_eq!(allowed.status(), 200);
        assert_eq!(header(&allowed, "access-control-allow-origin"), origin);
        assert!(header(&allowed, "access-control-allow-methods").contains("POST"));
        assert!(header(&allowed, "access-control-allow-headers").contains("idempotency-key"));
    }
    let refused = asks("https://evil.example.org").send().await.unwrap();
    assert_eq!(header(&refused, "access-control-allow-origin"), "");
    let made = client.post(&url).bearer_auth(daemon.key()).header("origin", PAGE).json(&json!({ "image": "base" }));
    let made = made.send().await.unwrap();
    assert_eq!((made.status().as_u16(), header(&made, "access-control-allow-origin").as_str()), (201, PAGE));
    let other = client.get(&url).bearer_auth(daemon.key()).header("origin", "https://evil.example.org");
    assert_eq!(header(&other.send().await.unwrap(), "access-control-allow-origin"), "");
    // The page learns that it needs a key.
    let without = client.get(&url).header("origin", PAGE).send().await.unwrap();
    assert_eq!((without.status().as_u16(), header(&without, "access-control-allow-origin").as_str()), (401, PAGE));
    place.end(&[]).await;
}

#[tokio::test]
async fn without_such_a_page_nothing_is_said_to_browsers() {
    let place = Place::new();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v1/health", place.daemon().address());
    let answer = client.get(&url).header("origin", PAGE).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), header(&answer, "access-control-allow-origin").as_str()), (200, ""));
    place.end(&[]).await;
}
