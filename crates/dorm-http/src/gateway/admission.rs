//! Access control for ports. A public port is open to every client that knows the sandbox's id. A
//! private port is open to requests with an API key, with the sandbox's port token, or with the
//! cookie that a one-time link was exchanged for.
//!
//! None of these is passed on to the program inside.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use dorm_lifecycle::{Caller, Credential, PortAccess, Wake};
use dorm_service::{COOKIE_LIFETIME, Service};

use super::{Gateway, PortError, Target};
use crate::access::Access;
use crate::door::Scheme;
use crate::headers::only;

/// The path of one-time links, on each port's own host.
pub const OPEN_LINK: &str = "/.dormouse/open";
/// The header that says which suspended sandboxes a request wakes.
pub const WAKE: HeaderName = HeaderName::from_static("x-dormouse-wake");
/// The header that carries the port token of a sandbox.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-dormouse-token");
/// The name of the cookie. It is valid only on the host of one port, since it names no domain.
const COOKIE: &str = "dorm_port";

/// Returns the service of the project of the sandbox, and the host that the program inside is told
/// if it is not the one that the client named. Refuses a request to a private port without
/// credentials for it. Requests to a public port have no caller, whatever they carry.
pub(super) async fn check(
    gateway: &Gateway,
    target: &Target,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(Service, Option<String>), PortError> {
    let service = gateway.access.daemon.of_sandbox(&target.sandbox).await.map_err(PortError::Unreachable)?;
    let service = match only(headers, &WAKE)? {
        None => service,
        Some("never") => service.waking(Wake::Never),
        // Traffic needs no key, so it must not wake more than the sandbox permits.
        Some(_) => return Err(PortError::Wake),
    };
    let terms = service.port_terms(&target.sandbox, target.port).await.map_err(PortError::Unreachable)?;
    match terms.access {
        PortAccess::Public => Ok((service, terms.host)),
        PortAccess::Private => {
            let credential = admits(&gateway.access, &service, target, method, headers);
            let credential = credential.ok_or_else(|| PortError::Private(target.clone()))?;
            Ok((service.as_caller(Some(Caller { door: gateway.door.clone(), credential })), terms.host))
        }
    }
}

/// The credential that admits a request to a private port; `None` if there is none.
fn admits(
    access: &Access,
    service: &Service,
    target: &Target,
    method: &Method,
    headers: &HeaderMap,
) -> Option<Credential> {
    let key = access.of_key(headers).filter(|key| key.open_ports_of(&target.sandbox, service.project()));
    if let Some(key) = key {
        return Some(key.credential());
    }
    if headers.get(TOKEN).is_some_and(|token| service.is_port_token(&target.sandbox, token.as_bytes())) {
        return Some(Credential::PortToken);
    }
    let by_cookie = is_of_its_own_page(method, headers)
        && cookies(headers).any(|cookie| service.is_port_cookie(&target.sandbox, target.port, cookie));
    by_cookie.then_some(Credential::PortLink)
}

/// Whether a request with a cookie comes from a page of that port, or from a user who opens one.
/// Browsers also send cookies with requests that other pages make.
fn is_of_its_own_page(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_opened = text("sec-fetch-mode") == Some("navigate") && (method == Method::GET || method == Method::HEAD);
    let is_own_site = match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => true,
        Some(_) => is_opened,
    };
    let is_own_origin = match text("origin") {
        None => true,
        Some(origin) => origin.split_once("://").map(|(_, host)| host) == text("host"),
    };
    is_own_site && is_own_origin
}

/// The values of this port's cookie. Browsers send all cookies in one header, and a page may set
/// others that are not ASCII.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(header::COOKIE).iter().flat_map(split);
    all.filter_map(|cookie| std::str::from_utf8(port_cookie(cookie)?).ok())
}

fn split(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b';')
}

/// The value of a cookie, if it is the cookie of a port.
fn port_cookie(cookie: &[u8]) -> Option<&[u8]> {
    cookie.trim_ascii().strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"=")
}

/// Removes all credentials for a port from the headers that the program inside gets.
pub(crate) fn conceal(headers: &mut HeaderMap) {
    headers.remove(TOKEN);
    let others = |value: &HeaderValue| {
        let left: Vec<&[u8]> = split(value).filter(|one| port_cookie(one).is_none()).map(<[u8]>::trim_ascii).collect();
        (!left.is_empty()).then(|| HeaderValue::from_bytes(&left.join(&b"; "[..])).ok())?
    };
    if !headers.get_all(header::COOKIE).iter().flat_map(split).any(|one| port_cookie(one).is_some()) {
        return;
    }
    let kept: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().filter_map(others).collect();
    headers.remove(header::COOKIE);
    for value in kept {
        headers.append(header::COOKIE, value);
    }
}

/// Answers a request for a one-time link: sets the cookie of its port and redirects to the link's
/// target. `None` for any other request.
pub(super) fn open_link(access: &Access, target: &Target, request: &Request) -> Option<Result<Response, PortError>> {
    if request.uri().path() != OPEN_LINK {
        return None;
    }
    let ticket = query(request.uri(), "ticket").unwrap_or_default();
    let Some(cookie) = access.daemon.open_port_link(&target.sandbox, target.port, ticket) else {
        return Some(Err(PortError::SpentLink));
    };
    let to = query(request.uri(), "to").filter(|to| is_path(to)).unwrap_or("/");
    let age = COOKIE_LIFETIME.as_secs();
    let secure = match request.extensions().get::<Scheme>() {
        Some(Scheme::Https) => "; Secure",
        Some(Scheme::Http) | None => "",
    };
    let cookie = format!("{COOKIE}={cookie}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
    let answer = Response::builder()
        .status(StatusCode::SEE_OTHER)
        .header(header::LOCATION, to)
        .header(header::SET_COOKIE, cookie)
        .header(header::CACHE_CONTROL, "no-store")
        .header(header::REFERRER_POLICY, "no-referrer")
        .body(Body::empty());
    Some(answer.map_err(|error| PortError::InvalidPath(error.to_string())))
}

/// Whether it is a path on the same host: `//` and `/\` begin another host.
fn is_path(to: &str) -> bool {
    to.starts_with('/') && !to[1..].starts_with(['/', '\\']) && to.bytes().all(|byte| byte.is_ascii_graphic())
}

fn query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    uri.query()?
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
}

/// Keeps other sites from seeing the id in the name of a port's host, unless the program inside
/// sets another policy.
pub(super) fn guard_referrer(headers: &mut HeaderMap) {
    headers.entry(header::REFERRER_POLICY).or_insert(HeaderValue::from_static("same-origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_cookie_counts_for_pages_of_its_own_port_alone() {
        let host = ("host", "8080-abc.localhost:7070");
        for (method, pairs, counts) in [
            (Method::GET, vec![], true),
            (Method::POST, vec![("origin", "http://8080-abc.localhost:7070"), ("sec-fetch-site", "same-origin")], true),
            (Method::GET, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], true),
            (Method::POST, vec![("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], false),
            (Method::GET, vec![("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")], false),
            (Method::GET, vec![("origin", "http://9090-def.localhost:7070")], false),
            (Method::GET, vec![("origin", "null")], false),
        ] {
            let all: Vec<_> = pairs.iter().copied().chain([host]).collect();
            assert_eq!(is_of_its_own_page(&method, &headers(&all)), counts, "{method} {pairs:?}");
        }
    }

    #[test]
    fn what_admits_is_not_passed_on_and_the_rest_is() {
        let mut found = headers(&[("x-dormouse-token", "t"), ("cookie", "a=1; dorm_port=2.x;b=3; dorm_portal=4")]);
        conceal(&mut found);
        assert_eq!(found.get(header::COOKIE).unwrap(), "a=1; b=3; dorm_portal=4");
        assert_eq!(found.len(), 1);
        let mut found = headers(&[("cookie", "dorm_port=2.x")]);
        conceal(&mut found);
        assert!(found.is_empty());
        // A program inside may set a cookie that is not ASCII.
        let mut found = HeaderMap::new();
        found.insert(header::COOKIE, HeaderValue::from_bytes(b"a=\xc3\xbc; dorm_port=2.x; b=\xff").unwrap());
        assert_eq!(cookies(&found).collect::<Vec<_>>(), ["2.x"]);
        conceal(&mut found);
        assert_eq!(found.get(header::COOKIE).unwrap().as_bytes(), b"a=\xc3\xbc; b=\xff");
    }

    #[test]
    fn a_link_leads_to_its_own_host_alone() {
        for (to, is_own) in [
            ("/", true),
            ("/a/b?c=d", true),
            ("//evil.test/", false),
            ("/\\evil.test", false),
            ("http://e", false),
            ("", false),
        ] {
            assert_eq!(is_path(to), is_own, "{to}");
        }
    }
}
