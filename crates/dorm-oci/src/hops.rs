//! The destinations of requests. A registry named by the daemon's own project is contacted at any
//! address. A URL that the registry names (a redirect, or a token service) is different: it is only
//! followed to permitted addresses, so that no registry can make the daemon send requests to the
//! host, its neighbours or its cloud. The same holds for all requests for another project.
//!
//! If the environment configures a proxy, the proxy resolves names, and decides about them.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use dorm_ports::{Destinations, Logins};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, LOCATION, PROXY_AUTHORIZATION};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, Request, RequestBuilder, Response, StatusCode, Url};
use thiserror::Error;

use crate::reference::Reference;
use crate::sending::{self, Failed, Whom};

/// The maximum number of redirects in a row.
const HOPS_MAX: usize = 10;
/// How to permit an address that is not public.
const ALLOW: &str = "if it is yours, allow its network with `dorm serve --allow-network`";
/// The environment variables that configure proxies.
const PROXIES: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// The HTTP clients for registries and for the URLs they name.
#[derive(Debug)]
pub(crate) struct Clients {
    /// For registries on other hosts, through a proxy if the environment configures one.
    far: Client,
    /// For registries on this host.
    near: Client,
    /// For URLs named by registries.
    foreign: Client,
    destinations: Destinations,
}

impl Clients {
    pub(crate) fn new(builder: impl Fn() -> ClientBuilder, destinations: Destinations) -> reqwest::Result<Self> {
        let builder = || builder().redirect(Policy::none());
        let names = Names { destinations: destinations.clone(), proxies: proxies() };
        Ok(Self {
            far: builder().build()?,
            near: builder().no_proxy().build()?,
            foreign: builder().dns_resolver(Arc::new(names)).build()?,
            destinations,
        })
    }

    /// Returns the clients for the registry of `reference`, whose URLs begin with `base`.
    pub(crate) fn of<'a>(&'a self, reference: &Reference, base: &str, logins: Logins) -> Hops<'a> {
        let own = if reference.is_loopback() { &self.near } else { &self.far };
        // A caller for whom the daemon's logins are not used may not name every address either.
        let base = match logins {
            Logins::Daemon => Url::parse(base).ok(),
            Logins::None => None,
        };
        Hops { own, foreign: &self.foreign, destinations: &self.destinations, base }
    }
}

/// The clients for one registry, and for the URLs it names.
pub(crate) struct Hops<'a> {
    own: &'a Client,
    foreign: &'a Client,
    destinations: &'a Destinations,
    base: Option<Url>,
}

impl Hops<'_> {
    /// Creates a request, to be sent with [`Hops::send`].
    pub(crate) fn request(&self, method: Method, url: impl reqwest::IntoUrl) -> RequestBuilder {
        self.own.request(method, url)
    }

    /// Sends a request, follows redirects, and classifies the response with [`sending::sort`].
    pub(crate) async fn send(&self, request: RequestBuilder, whom: &Whom) -> Result<Response, Failed> {
        let mut request = request.build().map_err(|error| Failed::Final(whom.unreachable(error)))?;
        for _ in 0..=HOPS_MAX {
            let again = request.try_clone();
            let client = if self.is_own(request.url()) {
                self.own
            } else {
                self.check(request.url()).map_err(|error| refused(&error, whom))?;
                self.foreign
            };
            let response = client.execute(request).await.map_err(|error| match not_permitted(&error) {
                Some(error) => refused(error, whom),
                None => Failed::Passing(whom.unreachable(error), None),
            })?;
            match again.and_then(|again| redirected(&response, again)) {
                Some(next) => request = next,
                None => return sending::sort(response, whom).await,
            }
        }
        Err(Failed::Final(whom.lies(format!("more than {HOPS_MAX} redirects in a row"))))
    }

    /// Returns whether a URL is the registry's own.
    fn is_own(&self, url: &Url) -> bool {
        self.base.as_ref().is_some_and(|base| base.origin() == url.origin())
    }

    /// Checks IP addresses in a URL. Host names are checked when they are resolved.
    fn check(&self, url: &Url) -> Result<(), NotPermitted> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !self.destinations.permit(address) => Err(NotPermitted(host.to_owned())),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// A host named by a registry is not permitted.
#[derive(Debug, Error)]
#[error("{0}, which has no public address")]
struct NotPermitted(String);

fn refused(error: &NotPermitted, whom: &Whom) -> Failed {
    Failed::Final(whom.lies(format!("a link to {error}: {ALLOW}")))
}

fn not_permitted(error: &reqwest::Error) -> Option<&NotPermitted> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Returns the request for a redirect; `None` if the response is not a redirect.
fn redirected(response: &Response, mut request: Request) -> Option<Request> {
    let keeps_method = match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method() != Method::POST,
        StatusCode::SEE_OTHER => matches!(*request.method(), Method::GET | Method::HEAD),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        _ => return None,
    };
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let url = response.url().join(location).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if !keeps_method {
        *request.method_mut() = Method::GET;
        *request.body_mut() = None;
        for name in [CONTENT_TYPE, CONTENT_LENGTH] {
            request.headers_mut().remove(name);
        }
    }
    // Credentials are only sent to the registry itself.
    if url.origin() != response.url().origin() {
        for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
            request.headers_mut().remove(name);
        }
    }
    *request.url_mut() = url;
    Some(request)
}

/// Resolves names to their permitted addresses.
struct Names {
    destinations: Destinations,
    /// The hosts of proxies, which are permitted because they are configured.
    proxies: BTreeSet<String>,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let is_proxy = self.proxies.contains(&name.as_str().to_ascii_lowercase());
        let destinations = self.destinations.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted = found.filter(|address| is_proxy || destinations.permit(address.ip()));
            let permitted: Vec<SocketAddr> = permitted.collect();
            if permitted.is_empty() {
                return Err(NotPermitted(name.as_str().to_owned()).into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

fn proxies() -> BTreeSet<String> {
    let set = PROXIES.iter().filter_map(|name| std::env::var(name).ok());
    let host = |text: String| {
        let url = Url::parse(&text).or_else(|_| Url::parse(&format!("http://{text}"))).ok()?;
        url.host_str().map(str::to_ascii_lowercase)
    };
    set.filter_map(host).collect()
}
