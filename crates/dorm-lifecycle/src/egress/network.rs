//! IPv4 networks, and which of them are not public.

use std::fmt;
use std::net::Ipv4Addr;

/// The networks that are not public: private, link-local, for cloud metadata, or without hosts.
/// The networks for documentation (such as 198.51.100.0/24) are not included, since no host can
/// have an address in them.
const NOT_PUBLIC: [(u32, u8); 13] = [
    (0x0000_0000, 8),
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0x7f00_0000, 8),
    // 168.63.129.16: Azure's services for its virtual machines, which are comparable to link-local
    // addresses.
    (0xa83f_8110, 32),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc058_6300, 24),
    (0xc0a8_0000, 16),
    (0xc612_0000, 15),
    (0xe000_0000, 4),
    (0xf000_0000, 4),
];

/// An IPv4 network. Its address has no bits beyond its prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network {
    first: u32,
    prefix: u8,
}

impl Network {
    /// The network of all addresses.
    pub const ALL: Self = Self { first: 0, prefix: 0 };

    /// Returns the network with the prefix of `prefix` bits that `address` is in; `None` for a
    /// prefix of more than 32 bits.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        (prefix <= 32).then(|| Self { first: u32::from(address) & mask(prefix), prefix })
    }

    /// Returns every network that is not public.
    pub fn not_public() -> impl Iterator<Item = Self> {
        NOT_PUBLIC.into_iter().map(|(first, prefix)| Self { first, prefix })
    }

    /// Returns its first address.
    pub fn address(self) -> Ipv4Addr {
        self.first.into()
    }

    /// Returns the length of its prefix, in bits.
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// Returns whether `other` is a part of it, or it itself.
    pub fn contains(self, other: Self) -> bool {
        self.prefix <= other.prefix && other.first & mask(self.prefix) == self.first
    }

    /// Returns whether it is a network that is not public, or a part of one. A rule that allows
    /// such a network names it; any other rule allows only public addresses.
    pub fn is_not_public(self) -> bool {
        Self::not_public().any(|network| network.contains(self))
    }

    /// Returns whether it contains public and other addresses.
    pub fn is_mixed(self) -> bool {
        !self.is_not_public() && Self::not_public().any(|network| self.contains(network))
    }

    pub(super) fn last(self) -> u32 {
        self.first | !mask(self.prefix)
    }

    pub(super) const fn first(self) -> u32 {
        self.first
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address(), self.prefix)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

/// Returns whether an address is public: neither private, link-local, nor of cloud metadata.
pub fn is_public(address: Ipv4Addr) -> bool {
    Network::new(address, 32).is_some_and(|network| !network.is_not_public())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: [u8; 4], prefix: u8) -> Network {
        Network::new(address.into(), prefix).unwrap()
    }

    #[test]
    fn the_networks_that_are_not_public_are_these() {
        let all: Vec<_> = Network::not_public().map(|network| network.to_string()).collect();
        assert_eq!(
            all,
            [
                "0.0.0.0/8",
                "10.0.0.0/8",
                "100.64.0.0/10",
                "127.0.0.0/8",
                "168.63.129.16/32",
                "169.254.0.0/16",
                "172.16.0.0/12",
                "192.0.0.0/24",
                "192.88.99.0/24",
                "192.168.0.0/16",
                "198.18.0.0/15",
                "224.0.0.0/4",
                "240.0.0.0/4",
            ]
        );
        assert!(Network::not_public().all(|network| network.first & !mask(network.prefix) == 0));
    }

    #[test]
    fn a_network_is_public_mixed_or_not_public() {
        assert!(network([10, 1, 2, 3], 16).is_not_public() && !network([10, 1, 2, 3], 16).is_mixed());
        assert!(network([10, 0, 0, 0], 7).is_mixed() && Network::ALL.is_mixed());
        assert!(!network([198, 51, 100, 0], 24).is_mixed() && !network([198, 51, 100, 0], 24).is_not_public());
        assert!(is_public([198, 51, 100, 10].into()) && !is_public([172, 31, 255, 255].into()));
        assert!(!is_public([169, 254, 169, 254].into()));
    }

    #[test]
    fn a_network_contains_its_parts() {
        assert!(Network::ALL.contains(network([255, 255, 255, 255], 32)) && Network::ALL.contains(Network::ALL));
        assert!(network([10, 0, 0, 0], 8).contains(network([10, 255, 0, 0], 16)));
        assert!(!network([10, 0, 0, 0], 16).contains(network([10, 0, 0, 0], 8)));
        assert_eq!(network([10, 9, 8, 7], 8), network([10, 0, 0, 0], 8));
        assert_eq!(Network::new([1, 2, 3, 4].into(), 33), None);
    }
}
