//! Addresses that the daemon may connect to because a caller or a registry named them: public ones,
//! and those in networks that the host's owner has allowed. Every other address is the host itself,
//! its neighbours, or the cloud service that hands out credentials.
//!
//! A name is resolved once, each address is checked here, and the connection goes to a permitted
//! address. It makes no difference if the name resolves to another address a moment later.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// IPv4 networks that are not public, by first address and prefix length.
const NOT_PUBLIC: [([u8; 4], u8); 17] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // The host service of one cloud, at a public address.
    ([168, 63, 129, 16], 32),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    ([255, 255, 255, 255], 32),
];
/// The only IPv6 block with public addresses, and the parts of it that are not public.
const PUBLIC_6: ([u16; 2], u8) = ([0x2000, 0], 3);
const NOT_PUBLIC_6: [([u16; 2], u8); 4] =
    [([0x2001, 0], 23), ([0x2001, 0x0db8], 32), ([0x2002, 0], 16), ([0x3fff, 0], 20)];

/// The permitted destinations of requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Destinations {
    allowed: Vec<IpNet>,
}

impl Destinations {
    /// Permits public addresses, and those in the `allowed` networks.
    pub fn public_and(allowed: impl IntoIterator<Item = IpNet>) -> Self {
        Self { allowed: allowed.into_iter().collect() }
    }

    /// Returns whether a request may go to this address.
    pub fn permit(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed.iter().any(|network| network.contains(&address)) || is_public(address)
    }
}

/// Returns whether an address belongs to the public internet. An IPv6 address that embeds an IPv4
/// address is public if that is.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !NOT_PUBLIC.iter().any(|(first, length)| is_in_4(address, *first, *length)),
        IpAddr::V6(address) => match translated(address) {
            Some(inner) => is_public(inner.into()),
            None => {
                let (first, length) = PUBLIC_6;
                is_in_6(address, first, length)
                    && !NOT_PUBLIC_6.iter().any(|(first, length)| is_in_6(address, *first, *length))
            }
        },
    }
}

/// Returns the IPv4 address that a network's translator connects to for `64:ff9b::/96`.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = address.segments() else { return None };
    Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
}

fn is_in_4(address: Ipv4Addr, first: [u8; 4], length: u8) -> bool {
    Ipv4Net::new(first.into(), length).is_ok_and(|network| network.contains(&address))
}

fn is_in_6(address: Ipv6Addr, [high, low]: [u16; 2], length: u8) -> bool {
    let first = Ipv6Addr::new(high, low, 0, 0, 0, 0, 0, 0);
    Ipv6Net::new(first, length).is_ok_and(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are() {
        for address in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "2a00::1", "64:ff9b::101:101"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        let other = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "3fff::1",
        ];
        for address in other {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_network_that_is_allowed_is_reached_however_its_addresses_are_written() {
        let destinations = Destinations::public_and(["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for (address, permitted) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("fd12::1", true),
            ("127.0.0.1", false),
            ("1.1.1.1", true),
        ] {
            assert_eq!(destinations.permit(address.parse().unwrap()), permitted, "{address}");
        }
    }
}
