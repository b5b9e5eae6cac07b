//! The gateway to ports inside sandboxes: HTTP/1.1 with streaming bodies, and upgraded connections
//! of any protocol.
//!
//! A request is for a port if its host is `PORT-ID.` followed by a domain of this server, or if its
//! headers name sandbox and port. A public port is protected only by the id, which cannot be
//! guessed; the name of a sandbox is therefore accepted only with a key. Access to a private port
//! is checked in `admission`.
//! Each request uses its own connection to the sandbox. No request is retried, and only hop-by-hop
//! headers are changed.

mod admission;
mod error;
mod tunnel;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use axum::response::Response;
use dorm_lifecycle::{DoorId, Name, SandboxId};
use dorm_store::KeyScope;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::access::{Access, Credentials};
use crate::connections::Standing;
use crate::door::{Door, Peer, Scheme};
use crate::hosts::{Domains, host};
use crate::life::Life;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use admission::conceal;
pub use admission::{OPEN_LINK, WAKE};
pub use error::PortError;

/// The prefix of Dormouse's own headers, which never reach the program inside.
const OWN_PREFIX: &str = "x-dormouse-";
/// The longest head of a response of a program inside, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
const SANDBOX: HeaderName = HeaderName::from_static("x-dormouse-sandbox");
const PORT: HeaderName = HeaderName::from_static("x-dormouse-port");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Finds the requests for ports among those of a door, and forwards them.
#[derive(Clone)]
pub struct Gateway {
    /// The door, for the records of what its requests change.
    pub door: DoorId,
    /// The keys and hosts of the door.
    pub access: Access,
    /// The life of the server.
    pub life: Life,
}

/// The result of [`Gateway::route`].
pub enum Routed {
    /// The request was for a port. This is the response of the program inside, or of the gateway to
    /// a browser that has opened a link.
    Port(Response),
    /// The request is for the door itself.
    Door(Request),
}

impl Gateway {
    /// Forwards a request for a port of a sandbox to it, and returns any other request.
    ///
    /// # Errors
    /// [`PortError`] for a host that this server does not answer to, and for a request to a port
    /// that cannot be forwarded, is not permitted, or was not answered.
    pub async fn route(&self, request: Request) -> Result<Routed, PortError> {
        let named = host(request.headers(), request.uri());
        if !self.access.domains.answer_to(named) {
            return Err(PortError::WrongHost(named.to_owned()));
        }
        match wanted(&self.access.domains, request.headers(), request.uri())? {
            None => Ok(Routed::Door(request)),
            Some(wanted) => {
                let key = self.access.credentials(request.extensions(), request.headers());
                let target = self.find(wanted, key).await?;
                self.forward(target, request).await.map(Routed::Port)
            }
        }
    }

    /// Finds the sandbox that a request names. Its id cannot be guessed; a name can, and counts
    /// only with a key of its project.
    async fn find(&self, wanted: Wanted, key: Option<Credentials>) -> Result<Target, PortError> {
        let Wanted { sandbox, port } = wanted;
        let name = match sandbox {
            Named::Id(sandbox) => return Ok(Target { sandbox, port }),
            Named::Name(name) => name,
        };
        let key = key.ok_or_else(|| PortError::NameWithoutKey(name.clone()))?;
        let service = self.access.daemon.for_project(&key.project).map_err(PortError::Unreachable)?;
        let sandbox = service.find(name.as_str()).await.map_err(PortError::Unreachable)?;
        match &key.scope {
            KeyScope::Sandbox(own) if *own != sandbox => Err(PortError::NoSandbox(name.to_string())),
            KeyScope::Sandbox(_) | KeyScope::Full | KeyScope::ReadOnly => Ok(Target { sandbox, port }),
        }
    }

    /// Forwards a request to a port of a sandbox, if the request may reach it.
    ///
    /// # Errors
    /// Those of [`Gateway::route`].
    pub async fn forward(&self, target: Target, request: Request) -> Result<Response, PortError> {
        if request.method() == Method::CONNECT {
            return Err(PortError::Connect);
        }
        if let Some(answer) = admission::open_link(&self.access, &target, &request) {
            return answer;
        }
        let (parts, body) = request.into_parts();
        let (service, host) = admission::check(self, &target, &parts.method, &parts.headers).await?;
        let mut request = Request::from_parts(parts, body);
        let (stream, in_use) = service.connect(&target.sandbox, target.port).await.map_err(PortError::Unreachable)?;
        if let Some(Door::Network(ticket)) = request.extensions().get::<Door>()
            && !ticket.stand(Standing::Visitor)
        {
            return Err(PortError::Crowded);
        }
        self.access.conceal(request.headers_mut());
        admission::conceal(request.headers_mut());
        prepare(&mut request, host.as_deref())?;
        exchange(&self.life, &target, stream, in_use, request).await
    }
}

/// A port of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// The port inside it.
    pub port: u16,
}

/// A port of a sandbox, as a request names it.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    sandbox: Named,
    pub(crate) port: u16,
}

/// A sandbox, as a request names it.
#[derive(PartialEq, Eq, Debug)]
enum Named {
    Id(SandboxId),
    Name(Name),
}

impl Named {
    /// Reads an id or a name; `None` for what can be neither.
    fn read(text: &str) -> Option<Self> {
        text.parse().map(Self::Id).or_else(|_| text.parse().map(Self::Name)).ok()
    }
}

/// The port that a request is for; `None` if it is for the door itself.
pub(crate) fn wanted(domains: &Domains, headers: &HeaderMap, uri: &Uri) -> Result<Option<Wanted>, PortError> {
    if headers.contains_key(SANDBOX) || headers.contains_key(PORT) {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let (sandbox, port) = (text(&SANDBOX), text(&PORT));
        let port = port.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| PortError::NoPort(text(&PORT).to_owned()))?;
        let sandbox = Named::read(sandbox).ok_or_else(|| PortError::NoSandbox(sandbox.to_owned()))?;
        return Ok(Some(Wanted { sandbox, port }));
    }
    Ok(wanted_by_host(domains, host(headers, uri)))
}

fn wanted_by_host(domains: &Domains, host: &str) -> Option<Wanted> {
    let label = domains.label(host)?;
    let (port, sandbox) = label.split_once('-')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some(Wanted { sandbox: Named::read(sandbox)?, port })
}

/// Sends one request over a new connection. `in_use` is kept until the response, or the connection
/// it was upgraded to, has ended.
async fn exchange<S, U>(
    life: &Life,
    target: &Target,
    stream: S,
    in_use: U,
    mut request: Request,
) -> Result<Response, PortError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    U: Send + Unpin + 'static,
{
    let silent = |error: hyper::Error| {
        tracing::debug!(port = target.port, error = &error as &dyn std::error::Error, "no answer from a port");
        PortError::Silent(target.clone())
    };
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(silent)?;
    let cut = life.cut.clone();
    life.tasks.spawn(async move {
        tokio::select! {
            ended = connection.with_upgrades() => drop(ended),
            () = cut.cancelled() => {}
        }
    });
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let mut response = sender.send_request(request).await.map_err(silent)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let inside = hyper::upgrade::on(&mut response);
        if let Some(outside) = upgrade {
            tunnel(life, outside, inside, in_use);
        }
        let upgraded = response.headers().get(header::UPGRADE).cloned();
        strip(response.headers_mut());
        restore_upgrade(response.headers_mut(), upgraded);
        return Ok(response.map(|_| Body::empty()));
    }
    strip(response.headers_mut());
    admission::guard_referrer(response.headers_mut());
    Ok(response.map(|body| Body::new(Answer { body, _in_use: in_use })))
}

/// Rewrites a request into the form that the program inside gets. `told` is the host that it is
/// told in place of the one that the client named.
pub(crate) fn prepare(request: &mut Request, told: Option<&str>) -> Result<(), PortError> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let uri = path.parse::<Uri>().map_err(|error| PortError::InvalidPath(error.to_string()))?;
    let peer = request.extensions().get::<Peer>().copied();
    let scheme = request.extensions().get::<Scheme>().copied().unwrap_or(Scheme::Http);
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    let upgrade = headers.get(header::UPGRADE).cloned();
    strip(headers);
    restore_upgrade(headers, upgrade);
    let ours: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with(OWN_PREFIX)).cloned().collect();
    for name in ours.into_iter().chain([FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO]) {
        headers.remove(name);
    }
    if let Some(value) = peer.and_then(|Peer(address)| HeaderValue::from_str(&address.to_string()).ok()) {
        headers.insert(FORWARDED_FOR, value);
    }
    if let Some(host) = headers.get(header::HOST).cloned() {
        headers.insert(FORWARDED_HOST, host);
    }
    if let Some(told) = told {
        let told = HeaderValue::from_str(told).map_err(|error| PortError::InvalidPath(error.to_string()))?;
        headers.insert(header::HOST, told);
    }
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme.as_str()));
    Ok(())
}

/// Removes the hop-by-hop headers.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

fn restore_upgrade(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    if let Some(upgrade) = upgrade {
        headers.insert(header::UPGRADE, upgrade);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Joins two upgraded connections until the tunnel is over or the server stops.
fn tunnel(life: &Life, outside: OnUpgrade, inside: OnUpgrade, in_use: impl Send + 'static) {
    let cut = life.cut.clone();
    life.tasks.spawn(async move {
        let copy = async {
            let (outside, inside) = tokio::try_join!(outside, inside).map_err(io::Error::other)?;
            tunnel::join(TokioIo::new(outside), TokioIo::new(inside)).await
        };
        tokio::select! {
            ended = copy => if let Err(error) = ended {
                tracing::debug!(%error, "a tunnel to a port broke");
            },
            () = cut.cancelled() => {}
        }
        drop(in_use);
    });
}

/// The body of a response. The sandbox counts as in use until the body is dropped.
struct Answer<U> {
    body: Incoming,
    _in_use: U,
}

impl<U: Unpin> HttpBody for Answer<U> {
    type Data = bytes::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
