//! Connections to receivers: only to addresses that the service permits, whatever their names
//! resolve to.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dorm_ports::Destinations;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url};
use thiserror::Error;

/// How long a receiver may take to answer.
const ANSWER: Duration = Duration::from_secs(15);

/// The reason why nothing is sent to an address.
#[derive(Debug, Error)]
pub(crate) enum NotPermitted {
    /// The URL is not valid.
    #[error("'{0}' is not an address")]
    Unreadable(String),
    /// The address is not public.
    #[error("{0} is not a public address")]
    NotPublic(IpAddr),
    /// The name resolves to no public address.
    #[error("the name {0} has no public address")]
    NameNotPublic(String),
}

/// A client that connects only to permitted addresses. It follows no redirect and uses no proxy.
pub(super) fn client(destinations: Destinations) -> reqwest::Result<Client> {
    let names = Names(destinations);
    let client = Client::builder().timeout(ANSWER).no_proxy().dns_resolver(Arc::new(names));
    client.redirect(reqwest::redirect::Policy::none()).build()
}

/// Checks a URL. A host that is written as an address must be permitted; names are looked up when
/// an event is sent.
pub(crate) fn check(url: &str, destinations: &Destinations) -> Result<(), NotPermitted> {
    let unreadable = || NotPermitted::Unreadable(url.to_owned());
    let parsed = Url::parse(url).map_err(|_| unreadable())?;
    // Parsed as the client parses it: there are many ways to write 127.0.0.1.
    let host = parsed.host_str().ok_or_else(unreadable)?;
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(address) if !destinations.permit(address) => Err(NotPermitted::NotPublic(address)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A resolver that returns only permitted addresses.
struct Names(Destinations);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let destinations = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted: Vec<SocketAddr> = found.filter(|address| destinations.permit(address.ip())).collect();
            if permitted.is_empty() {
                return Err(NotPermitted::NameNotPublic(name.as_str().to_owned()).into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_private_address_is_refused() {
        let nothing = Destinations::default();
        let private = [
            "http://127.0.0.1/",
            "http://127.1:80/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://169.254.169.254/latest",
            "http://[::1]:9000/",
            "http://[::ffff:10.0.0.1]/",
            "http://user@10.0.0.1/",
            "http://0/",
            "http://127.0.0.1./",
        ];
        for url in private {
            assert!(check(url, &nothing).is_err(), "{url}");
        }
        for url in ["http://1.1.1.1/hook", "http://example.org/", "http://localhost/"] {
            check(url, &nothing).unwrap();
        }
        let loopback = Destinations::public_and(["127.0.0.0/8".parse().unwrap()]);
        check("http://127.0.0.1:9000/hook", &loopback).unwrap();
        assert!(check("http://10.0.0.1/", &loopback).is_err());
    }

    #[tokio::test]
    async fn a_name_is_only_resolved_to_permitted_addresses() {
        let resolve = async |destinations: Destinations| {
            let found = Names(destinations).resolve("localhost".parse().unwrap()).await;
            found.map(|addresses| addresses.map(|address| address.ip()).collect::<Vec<_>>())
        };
        let refused = resolve(Destinations::default()).await.unwrap_err().to_string();
        assert!(refused.contains("localhost has no public address"), "{refused}");
        let found = resolve(Destinations::public_and(["127.0.0.0/8".parse().unwrap()])).await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_ipv4), "{found:?}");
    }
}
