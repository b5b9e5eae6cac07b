//! The interfaces and routes in the network namespace of the calling thread.
//!
//! This module reads `/proc/thread-self` instead of `/proc/net`, which shows the namespace of the
//! process's first thread.

use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

const MTU_USUAL: u16 = 1500;
const MTU_LEAST: u16 = 576;

/// Returns the names of the interfaces in the namespace of this thread.
pub(crate) fn interfaces() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect())
}

/// Returns the bytes that an interface of the host has received and sent, if it exists.
pub(crate) fn counted(interface: &str) -> io::Result<Option<(u64, u64)>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    Ok(text.lines().find_map(|line| counts(line, interface)))
}

/// Parses a line such as `eth0: 1500 10 0 0 0 0 0 0 900 9 0 0 0 0 0 0`.
fn counts(line: &str, interface: &str) -> Option<(u64, u64)> {
    let (name, counts) = line.split_once(':')?;
    let mut counts = counts.split_whitespace();
    let received = (name.trim() == interface).then(|| counts.next()).flatten()?.parse().ok()?;
    Some((received, counts.nth(7)?.parse().ok()?))
}

/// Returns the size of the largest packet that leaves the host unfragmented, as far as that is
/// known here: at most 1500 bytes.
pub(crate) fn uplink_mtu() -> u16 {
    let device = routes().ok().and_then(|routes| routes.into_iter().find(|route| route.network.prefix_len() == 0));
    let size = device
        .and_then(|route| std::fs::read_to_string(format!("/sys/class/net/{}/mtu", route.device)).ok())
        .and_then(|text| text.trim().parse::<u16>().ok());
    size.unwrap_or(MTU_USUAL).clamp(MTU_LEAST, MTU_USUAL)
}

/// Returns the interfaces with a route, in the namespace of this thread.
pub(crate) fn devices() -> io::Result<Vec<String>> {
    Ok(routes()?.into_iter().map(|route| route.device).collect())
}

/// A route of the host, and the interface it leads to.
pub(crate) struct Route {
    device: String,
    pub(crate) network: Ipv4Net,
}

/// Returns the routes in the namespace of this thread.
pub(crate) fn routes() -> io::Result<Vec<Route>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/route")?;
    Ok(text.lines().skip(1).filter_map(route).collect())
}

fn route(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    // The numbers have the bytes of the address in memory order.
    let address = |word: &str| u32::from_str_radix(word, 16).ok().map(|number| Ipv4Addr::from(number.to_ne_bytes()));
    let (network, mask) = (address(words.get(1)?)?, address(words.get(7)?)?);
    Some(Route { device: (*words.first()?).to_owned(), network: Ipv4Net::with_netmask(network, mask).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_routing_table_is_read() {
        let read = route("eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0").unwrap();
        assert_eq!((read.device.as_str(), read.network.to_string().as_str()), ("eth0", "192.0.2.0/24"));
        assert_eq!(route("eth0 00000000 0102000A 0003 0 0 0 00000000 0 0 0").unwrap().network.prefix_len(), 0);
    }

    #[test]
    fn the_counts_of_an_interface_are_read() {
        let line = "dorma-1: 1500 10 0 0 0 0 0 0 900 9 0 0 0 0 0 0";
        assert_eq!(counts(line, "dorma-1"), Some((1500, 900)));
        assert_eq!(counts(line, "dorma-11"), None);
        assert_eq!(counts("Inter-|   Receive", "dorma-1"), None);
    }
}
