//! The requests of one connection: checks each, sets its headers, and passes it and its response on
//! as they come. Only heads are held in memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::upstream::{Destination, Outgoing, Upstream};

/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;

/// The body of a response on its way to the sandbox.
type Reply = Response<BoxBody<Bytes, hyper::Error>>;

/// Serves a connection to its end.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    upstream: Arc<Upstream>,
) -> Result<(), String> {
    let mut settings = hyper::server::conn::http1::Builder::new();
    settings.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).timer(TokioTimer::new());
    settings.header_read_timeout(upstream.limits().idle).auto_date_header(false);
    let service = hyper::service::service_fn(move |request| {
        let upstream = Arc::clone(&upstream);
        async move { Ok::<_, Infallible>(answer(&upstream, request).await) }
    });
    let served = settings.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    served.map_err(|error| error.to_string())
}

/// Why a request is not passed on, as the program in the sandbox learns it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Refused(StatusCode, String);

async fn answer(upstream: &Arc<Upstream>, request: Request<Incoming>) -> Reply {
    match pass_on(upstream, request).await {
        Ok(reply) => reply,
        Err(Refused(status, reason)) => {
            tracing::debug!(host = upstream.destination.name, %status, reason, "refused a request of a sandbox");
            let body = Full::new(Bytes::from(format!("dormouse: {reason}\n"))).map_err(|never| match never {});
            let mut reply = Response::new(body.boxed());
            *reply.status_mut() = status;
            reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            // The rest of the request is not read.
            reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            reply
        }
    }
}

async fn pass_on(upstream: &Arc<Upstream>, mut request: Request<Incoming>) -> Result<Reply, Refused> {
    check(&upstream.destination, &request)?;
    let headers = upstream.headers().map_err(|reason| Refused(StatusCode::BAD_GATEWAY, reason))?;
    let protocol = upgrade_of(request.headers());
    let switching = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
    let (mut parts, body) = request.into_parts();
    // With both a length and chunks, the chunks count, and only they are written.
    if body.size_hint().exact().is_none() {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    parts.uri = origin_form(&parts.uri);
    parts.version = Version::HTTP_11;
    strip(&mut parts.headers);
    // The body is asked for when it is passed on, which is at once.
    parts.headers.remove(header::EXPECT);
    if let Some(protocol) = protocol {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(header::UPGRADE, protocol);
    }
    for (name, mut value) in headers {
        value.set_sensitive(true);
        let name = HeaderName::try_from(name).map_err(|error| Refused(StatusCode::BAD_GATEWAY, error.to_string()))?;
        parts.headers.insert(name, value);
    }
    let moved = Arc::new(AtomicU64::new(0));
    let body = Counted { body, moved: Arc::clone(&moved) }.boxed();
    let mut response = send(upstream, Request::from_parts(parts, body), &moved).await?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = switching else {
            let reason = "the host switched to another protocol without being asked to";
            return Err(Refused(StatusCode::BAD_GATEWAY, reason.to_owned()));
        };
        join(upstream, client, hyper::upgrade::on(&mut response));
    } else {
        strip(response.headers_mut());
    }
    // It would lead to another port or protocol, past the rules.
    response.headers_mut().remove(header::ALT_SVC);
    Ok(response.map(|body| body.boxed()))
}

/// Sends a request and waits for the head of its response.
async fn send(
    upstream: &Arc<Upstream>,
    request: Request<Outgoing>,
    moved: &AtomicU64,
) -> Result<Response<Incoming>, Refused> {
    let unreachable = |reason| Refused(StatusCode::BAD_GATEWAY, reason);
    let mut connection = upstream.connection().await.map_err(unreachable)?;
    let answered = within(upstream, moved, connection.try_send_request(request)).await?;
    let response = match answered {
        Ok(response) => response,
        Err(mut failed) => {
            // A host may close an idle connection at any time. Nothing of the request was sent.
            let Some(request) = failed.take_message() else {
                return Err(unreachable(format!("{} did not answer: {}", upstream.destination.name, failed.error())));
            };
            connection = upstream.new_connection().await.map_err(unreachable)?;
            let sent = within(upstream, moved, connection.try_send_request(request)).await?;
            let lost = |error: &hyper::Error| format!("{} did not answer: {error}", upstream.destination.name);
            sent.map_err(|failed| unreachable(lost(failed.error())))?
        }
    };
    upstream.keep(connection).await;
    Ok(response)
}

/// Waits for an answer as long as the body of the request moves, and then for a limited time.
async fn within<T>(upstream: &Upstream, moved: &AtomicU64, answer: impl Future<Output = T>) -> Result<T, Refused> {
    let limit = upstream.limits().answer;
    tokio::pin!(answer);
    loop {
        let before = moved.load(Ordering::Relaxed);
        match tokio::time::timeout(limit, &mut answer).await {
            Ok(answered) => return Ok(answered),
            Err(_) if moved.load(Ordering::Relaxed) != before => {}
            Err(_) => {
                let reason = format!("{} did not answer within {} s", upstream.destination.name, limit.as_secs());
                return Err(Refused(StatusCode::GATEWAY_TIMEOUT, reason));
            }
        }
    }
}

/// Passes bytes on in both directions once both sides have switched protocols.
fn join(upstream: &Arc<Upstream>, client: hyper::upgrade::OnUpgrade, host: hyper::upgrade::OnUpgrade) {
    let name = upstream.destination.name.clone();
    upstream.spawn(async move {
        let (client, host) = match tokio::try_join!(client, host) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(name, %error, "cannot switch protocols"),
        };
        let (mut client, mut host) = (TokioIo::new(client), TokioIo::new(host));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut host).await {
            tracing::debug!(name, %error, "an upgraded connection ended early");
        }
    });
}

/// Refuses requests to another host than the one that the connection is for, and those that would
/// show the headers to the sandbox.
fn check<B>(destination: &Destination, request: &Request<B>) -> Result<(), Refused> {
    if [Method::TRACE, Method::CONNECT].contains(request.method()) {
        let reason = format!("{} is refused for hosts of header rules", request.method());
        return Err(Refused(StatusCode::METHOD_NOT_ALLOWED, reason));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Refused(StatusCode::BAD_REQUEST, "the request must have exactly one Host header".to_owned()));
    };
    let host = host.to_str().unwrap_or_default();
    let authority = request.uri().authority().map(hyper::http::uri::Authority::as_str);
    for named in [Some(host), authority].into_iter().flatten() {
        if !is_for(destination, named) {
            // The text of the sandbox is not repeated: it may be anything.
            let reason =
                format!("the request is for another host than its connection, which is for {}", destination.name);
            return Err(Refused(StatusCode::MISDIRECTED_REQUEST, reason));
        }
    }
    Ok(())
}

/// Returns whether `HOST` or `HOST:PORT` is the destination. The port may be left out only if it is
/// that of HTTPS.
fn is_for(destination: &Destination, named: &str) -> bool {
    let (name, port) = match named.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (named, Some(dorm_lifecycle::HTTPS_PORT)),
    };
    name.eq_ignore_ascii_case(&destination.name) && port == Some(destination.port)
}

/// Returns the protocol that the request asks to switch to.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = tokens(headers, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| asks).cloned()
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

/// Removes the headers of one hop. Those of the next are set by what writes it.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        tokens(headers, &header::CONNECTION).filter_map(|token| HeaderName::try_from(token).ok()).collect();
    for name in named.iter().filter(|name| ![header::HOST, header::CONTENT_LENGTH].contains(name)) {
        headers.remove(name);
    }
    for name in [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

/// Returns the path and query alone, which is how requests to a host itself are written.
fn origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    path.parse().unwrap_or_else(|_| Uri::from_static("/"))
}

/// A body that counts how often a part of it has passed.
struct Counted {
    body: Incoming,
    moved: Arc<AtomicU64>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(context);
        if frame.is_ready() {
            this.moved.fetch_add(1, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(port: u16) -> Destination {
        Destination { name: "api.a.test".to_owned(), port }
    }

    fn request(method: Method, uri: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn only_requests_for_the_host_of_the_connection_are_passed_on() {
        let status = |port, uri, hosts: &[&str]| match check(&destination(port), &request(Method::GET, uri, hosts)) {
            Ok(()) => 200,
            Err(Refused(status, _)) => status.as_u16(),
        };
        for host in ["api.a.test", "API.a.test", "api.a.test:443"] {
            assert_eq!(status(443, "/", &[host]), 200, "{host}");
        }
        assert_eq!(status(8443, "/", &["api.a.test:8443"]), 200);
        assert_eq!(status(443, "https://api.a.test/x", &["api.a.test"]), 200);
        for host in ["b.a.test", "api.a.test:80", "api.a.test:", "api.a.test.", "xapi.a.test", "api.a.test@b.test", ""]
        {
            assert_eq!(status(443, "/", &[host]), 421, "{host}");
        }
        assert_eq!(status(8443, "/", &["api.a.test"]), 421);
        assert_eq!(status(443, "https://b.test/x", &["api.a.test"]), 421);
        assert_eq!(status(443, "/", &[]), 400);
        assert_eq!(status(443, "/", &["api.a.test", "api.a.test"]), 400);
    }

    #[test]
    fn methods_that_show_headers_or_open_tunnels_are_refused() {
        for method in [Method::TRACE, Method::CONNECT] {
            let refused = check(&destination(443), &request(method, "/", &["api.a.test"]));
            assert_eq!(refused.unwrap_err().0, StatusCode::METHOD_NOT_ALLOWED);
        }
    }

    #[test]
    fn headers_of_one_hop_are_removed_and_none_that_frame_the_message() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "x-hop, Content-Length, upgrade"),
            ("x-hop", "1"),
            ("x-end", "2"),
            ("content-length", "3"),
            ("te", "trailers"),
            ("keep-alive", "5"),
            ("upgrade", "websocket"),
            ("proxy-authorization", "x"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(upgrade_of(&headers).unwrap(), "websocket");
        strip(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "x-end"]);
        assert_eq!(upgrade_of(&headers), None);
    }

    #[test]
    fn a_request_is_written_as_for_the_host_itself() {
        assert_eq!(origin_form(&"https://a.test/b?c=d".parse().unwrap()), "/b?c=d");
        assert_eq!(origin_form(&"/b".parse().unwrap()), "/b");
        assert_eq!(origin_form(&"*".parse().unwrap()), "*");
    }
}
