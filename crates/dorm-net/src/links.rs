//! Links, addresses, routes and queues in the network namespace of the thread that opens a
//! [`Links`], set by netlink. This module does not know leases.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily as SocketFamily, SocketFlags, SocketType, socket_with};
use thiserror::Error;

/// Why the kernel refused a change.
#[derive(Debug, Error)]
#[error("cannot {operation}")]
pub(crate) struct LinkError {
    operation: String,
    #[source]
    source: io::Error,
}

/// One end of a pair of links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: Option<u16>,
}

/// How a queue delays packets beyond a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// In bytes per second.
    pub(crate) rate: u64,
    /// In bytes.
    pub(crate) burst: u32,
    /// The length of the queue, in bytes.
    pub(crate) queue: u32,
}

/// Changes the links of one network namespace.
#[derive(Debug)]
pub(crate) struct Links {
    netlink: Socket,
    /// Tells the numbers of links by their names.
    numbers: OwnedFd,
    sequence: u32,
}

impl Links {
    /// Opens the namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, LinkError> {
        let opened = || -> io::Result<Self> {
            let numbers = socket_with(SocketFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            Ok(Self { netlink: netlink(NETLINK_ROUTE)?, numbers, sequence: 0 })
        };
        opened().map_err(|source| LinkError { operation: "open a netlink socket".into(), source })
    }

    /// Creates a pair of links, the second of which is in the network namespace `peers`, if given.
    pub(crate) fn add_pair(
        &mut self,
        end: End<'_>,
        peer: End<'_>,
        peers: Option<BorrowedFd<'_>>,
    ) -> Result<(), LinkError> {
        let mut other = link(peer);
        other.attributes.extend(peers.map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())));
        let mut message = link(end);
        let data = InfoData::Veth(InfoVeth::Peer(other));
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(data)]));
        let operation = || format!("add the links {} and {}", end.name, peer.name);
        self.ask(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, operation)
    }

    /// Removes a link, and its other end. One that does not exist is no error.
    pub(crate) fn remove(&mut self, name: &str) -> Result<(), LinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let removed = self.ask(RouteNetlinkMessage::DelLink(message), 0, || format!("remove the link {name}"));
        allow(removed, Errno::NODEV)
    }

    /// Gives a link no IPv6 address of its own. A kernel without IPv6 never does.
    pub(crate) fn set_no_own_address(&mut self, name: &str) -> Result<(), LinkError> {
        let operation = || format!("keep the link {name} without IPv6 address");
        let mut message = LinkMessage::default();
        message.header.index = self.index(name, operation)?;
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]));
        allow(self.ask(RouteNetlinkMessage::SetLink(message), 0, operation), Errno::AFNOSUPPORT)
    }

    /// Brings a link up.
    pub(crate) fn set_up(&mut self, name: &str) -> Result<(), LinkError> {
        let operation = || format!("bring the link {name} up");
        let mut message = LinkMessage::default();
        message.header.index = self.index(name, operation)?;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(message), 0, operation)
    }

    /// Adds an address to a link.
    pub(crate) fn add_address(&mut self, name: &str, address: Ipv4Addr, prefix_length: u8) -> Result<(), LinkError> {
        let operation = || format!("add the address {address}/{prefix_length} to the link {name}");
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix_length;
        message.header.index = self.index(name, operation)?;
        let address = IpAddr::V4(address);
        message.attributes.extend([AddressAttribute::Local(address), AddressAttribute::Address(address)]);
        self.ask(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, operation)
    }

    /// Makes a link reach an address under a hardware address, without asking for it.
    pub(crate) fn set_neighbour(&mut self, name: &str, address: Ipv4Addr, mac: [u8; 6]) -> Result<(), LinkError> {
        let operation = || format!("set the neighbour {address} of the link {name}");
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = self.index(name, operation)?;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unspec;
        let reached = NeighbourAttribute::Destination(NeighbourAddress::Inet(address));
        message.attributes.extend([reached, NeighbourAttribute::LinkLayerAddress(mac.to_vec())]);
        self.ask(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, operation)
    }

    /// Adds the default route.
    pub(crate) fn add_default_route(&mut self, gateway: Ipv4Addr) -> Result<(), LinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Boot;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(gateway)));
        let operation = || format!("add the default route by {gateway}");
        self.ask(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL, operation)
    }

    /// Gives a link a queue that delays packets beyond a rate.
    pub(crate) fn shape(&mut self, name: &str, shape: Shape) -> Result<(), LinkError> {
        let operation = || format!("shape the traffic of the link {name}");
        let index = self.index(name, operation)?;
        let mut message = TcMessage::with_index(i32::try_from(index).unwrap_or(i32::MAX));
        message.header.parent = TcHandle::ROOT;
        message.attributes.extend([TcAttribute::Kind("tbf".into()), TcAttribute::Options(token_bucket(shape))]);
        self.ask(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE, operation)
    }

    fn index(&self, name: &str, operation: impl Fn() -> String) -> Result<u32, LinkError> {
        name_to_index(&self.numbers, name).map_err(|source| LinkError { operation: operation(), source: source.into() })
    }

    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: impl Fn() -> String,
    ) -> Result<(), LinkError> {
        self.request(message, flags).map_err(|source| LinkError { operation: operation(), source })
    }

    /// Sends a request and waits for its result.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.netlink.send(&bytes, 0)?;
        loop {
            let (answer, _) = self.netlink.recv_from_full()?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
            match answer.payload {
                NetlinkPayload::Error(error) if answer.header.sequence_number == self.sequence => {
                    return error.code.map_or(Ok(()), |_| Err(error.to_io()));
                }
                _ => {}
            }
        }
    }
}

fn allow(result: Result<(), LinkError>, errno: Errno) -> Result<(), LinkError> {
    match result {
        Err(error) if error.source.raw_os_error() == Some(errno.raw_os_error()) => Ok(()),
        result => result,
    }
}

fn link(end: End<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.extend([LinkAttribute::IfName(end.name.to_owned()), LinkAttribute::Address(end.mac.to_vec())]);
    message.attributes.extend(end.mtu.map(|mtu| LinkAttribute::Mtu(mtu.into())));
    message
}

/// Opens a socket to the kernel, in the network namespace of the calling thread.
pub(crate) fn netlink(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Returns the options of a token bucket filter, which the crate lacks: the kernel's `struct
/// tc_tbf_qopt`, two `struct tc_ratespec` and three numbers of which only the length of the queue
/// is set. The burst is an attribute of its own, as is a rate of more than 32 bits.
fn token_bucket(shape: Shape) -> Vec<TcOption> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const BURST: u16 = 6;
    /// The link layer that needs no table of rates.
    const ETHERNET: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];
    let rate = u32::try_from(shape.rate).unwrap_or(u32::MAX);
    let parms = [&ETHERNET[..], &rate.to_ne_bytes(), &[0; 12], &shape.queue.to_ne_bytes(), &[0; 8]].concat();
    let mut options = vec![(PARMS, parms), (BURST, shape.burst.to_ne_bytes().to_vec())];
    if shape.rate >= u64::from(u32::MAX) {
        options.push((RATE64, shape.rate.to_ne_bytes().to_vec()));
    }
    options.into_iter().map(|(kind, value)| TcOption::Other(DefaultNla::new(kind, value))).collect()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Nla as _;

    use super::*;

    #[test]
    fn an_error_names_the_change_and_the_link() {
        let mut links = Links::open().unwrap();
        let error = links.set_up("dorm-not-there").unwrap_err();
        assert_eq!(error.to_string(), "cannot bring the link dorm-not-there up");
        assert_eq!(error.source.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    }

    #[test]
    fn the_options_of_a_token_bucket_are_as_the_kernel_reads_them() {
        let shape = Shape { rate: 0x0102_0304, burst: 5, queue: 6 };
        let options = token_bucket(shape);
        let lengths: Vec<_> = options.iter().map(|option| (option.kind(), option.value_len())).collect();
        assert_eq!(lengths, [(1, 36), (6, 4)]);
        let mut parms = [0; 36];
        options[0].emit_value(&mut parms);
        assert_eq!((parms[1], &parms[8..12], parms[24]), (1, &0x0102_0304_u32.to_ne_bytes()[..], 6));
        let fast = token_bucket(Shape { rate: u64::MAX, ..shape });
        assert_eq!(fast.last().map(|option| (option.kind(), option.value_len())), Some((4, 8)));
    }
}
