//! Entry points for fuzzers: requests to ports of sandboxes, before their sender is known. Not part
//! of any shipped build.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, Uri};

use crate::door::Peer;
use crate::gateway::{self, HOP_BY_HOP};
use crate::hosts::Domains;
use crate::keys::Keys;

const KEY: &str = "the-key";
const PEER: [u8; 4] = [192, 0, 2, 7];

/// Finds the port that a request is for, and prepares the request for the program inside.
///
/// # Panics
/// If anything is passed on that concerns only the daemon or the connection.
pub fn request(head: &[u8]) {
    let Some(mut request) = read(head) else { return };
    let Ok(Some(wanted)) = gateway::wanted(&Domains::default(), request.headers(), request.uri()) else { return };
    assert_ne!(wanted.port, 0);
    let keys = Keys::new([KEY.to_owned()]);
    keys.conceal(request.headers_mut(), |_| false);
    gateway::conceal(request.headers_mut());
    request.extensions_mut().insert(Peer(PEER.into()));
    if gateway::prepare(&mut request, None).is_err() {
        return;
    }
    let uri = request.uri();
    assert!(uri.scheme().is_none() && uri.authority().is_none(), "{uri}");
    assert!(uri.path().starts_with('/') || uri.path() == "*", "{uri}");
    passed_on(request.headers(), &keys);
}

/// Checks the headers that the program inside gets.
fn passed_on(headers: &HeaderMap, keys: &Keys) {
    let is_upgrade = headers.contains_key(header::UPGRADE);
    for name in &HOP_BY_HOP {
        let may_be_there = is_upgrade && (*name == header::UPGRADE || *name == header::CONNECTION);
        assert!(may_be_there || !headers.contains_key(name), "{name} is passed on");
    }
    if is_upgrade {
        assert_eq!(headers.get_all(header::CONNECTION).iter().collect::<Vec<_>>(), ["upgrade"]);
    }
    assert!(!headers.keys().any(|name| name.as_str().starts_with("x-dormouse-")));
    let from: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    assert_eq!(from, [&HeaderValue::from_static("192.0.2.7")], "who asks is what a client says");
    assert!(!keys.admit(headers), "a key is passed on");
}

/// Parses the lines of a request. Leaves out lines that no HTTP parser would pass on.
fn read(head: &[u8]) -> Option<Request> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next()?;
    let at = first.iter().position(|byte| *byte == b' ')?;
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::from_bytes(&first[..at]).ok()?;
    *request.uri_mut() = Uri::try_from(&first[at + 1..]).ok()?;
    for line in lines {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            request.headers_mut().append(name, value);
        }
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    #[test]
    fn requests_that_fuzzers_begin_with_pass() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gateway");
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let head = std::fs::read(seed.unwrap().path()).unwrap();
            assert!(super::read(&head).is_some());
            super::request(&head);
            count += 1;
        }
        assert!(count > 0, "there are no seeds in {seeds}");
    }
}
