//! The network links of a container. They are what `runsc start` would configure, but set up ahead
//! of time and without its check for the host's own network namespace, which fails on kernels from
//! 6.11 on.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use dorm_engine::Lease;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::error::GvisorError;

const MTU: u32 = 1500;

/// Returns the argument that gives a container a loopback interface, and the interface of `lease`
/// if it has one.
pub(crate) fn describe(lease: Option<&Lease>) -> Value {
    let mut links = json!({
        "LoopbackLinks": [{
            "Name": "lo",
            "Addresses": [{"Address": "127.0.0.1", "PrefixLen": 8}, {"Address": "::1", "PrefixLen": 128}],
            "Routes": [
                {"Destination": {"IP": "127.0.0.0", "Mask": base64(&[255, 0, 0, 0])}, "Gateway": ""},
                {"Destination": {"IP": "::1", "Mask": base64(&[255; 16])}, "Gateway": ""},
            ],
        }],
    });
    let (Some(lease), Some(map)) = (lease, links.as_object_mut()) else { return links };
    let mask = u32::MAX.checked_shl(32 - u32::from(lease.prefix)).unwrap_or(0);
    let network = std::net::Ipv4Addr::from(u32::from(lease.address) & mask);
    let outside = json!([{
        "Name": "eth0", "InterfaceIndex": 0, "MTU": MTU,
        "Addresses": [{"Address": lease.address, "PrefixLen": lease.prefix}],
        "Routes": [{"Destination": {"IP": network, "Mask": base64(&mask.to_be_bytes())}, "Gateway": ""}],
        "GSOMaxSize": 65536, "GVisorGSOEnabled": false, "GVisorGRO": false,
        "TXChecksumOffload": false, "RXChecksumOffload": true,
        "LinkAddress": base64(&lease.mac), "QDisc": 1, "Neighbors": null,
        "NumChannels": 1, "ProcessorsPerChannel": 0,
    }]);
    // The mask of a default route is sixteen bytes long, as Go encodes it.
    let everywhere = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0];
    map.insert("FDBasedLinks".into(), outside);
    map.insert("XDPLinks".into(), Value::Null);
    map.insert(
        "Defaultv4Gateway".into(),
        json!({
            "Route": {"Destination": {"IP": "0.0.0.0", "Mask": base64(&everywhere)}, "Gateway": lease.gateway},
            "Name": "eth0",
        }),
    );
    map.insert(
        "Defaultv6Gateway".into(),
        json!({"Route": {"Destination": {"IP": "", "Mask": null}, "Gateway": ""}, "Name": ""}),
    );
    for (key, value) in [("PCAP", false), ("LogPackets", false), ("NATBlob", false), ("DisconnectOk", true)] {
        map.insert(key.into(), json!(value));
    }
    links
}

/// Takes the lease's interface over from the kernel: opens a raw socket that receives all its
/// packets, and removes the kernel's address, which would answer them.
pub(crate) async fn take_over(lease: &Lease) -> Result<OwnedFd, GvisorError> {
    let lease = lease.clone();
    let (answer, answered) = tokio::sync::oneshot::channel();
    // A network namespace belongs to a thread. This thread is used for nothing else and ends here.
    let spawned = std::thread::Builder::new().name("links".into()).spawn(move || answer.send(packets(&lease)));
    spawned.map_err(|source| GvisorError::system("start a thread", source))?;
    answered
        .await
        .unwrap_or_else(|_| Err(GvisorError::system("open a packet socket", io::Error::other("the thread panicked"))))
}

#[allow(clippy::disallowed_methods, reason = "it runs on a thread of its own")]
fn packets(lease: &Lease) -> Result<OwnedFd, GvisorError> {
    let namespace =
        std::fs::File::open(&lease.namespace).map_err(|source| GvisorError::file("open", &lease.namespace, source))?;
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
        .map_err(|source| GvisorError::file("enter", &lease.namespace, source))?;
    let socket =
        packet_socket(&lease.interface).map_err(|source| GvisorError::system("open a packet socket", source))?;
    flush_address(&lease.interface).map_err(|source| GvisorError::system("remove the kernel's address", source))?;
    Ok(socket)
}

fn last_error_if(failed: bool) -> io::Result<()> {
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[allow(unsafe_code)]
fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let name = std::ffi::CString::new(interface)?;
    let all = u16::to_be(libc::ETH_P_ALL as u16);
    // SAFETY: plain system calls; every pointer is to a live local of the stated size, and the
    // descriptor has no other owner. rustix does not support addresses of packet sockets.
    unsafe {
        let index = libc::if_nametoindex(name.as_ptr());
        last_error_if(index == 0)?;
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        last_error_if(fd < 0)?;
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = index as i32;
        let size = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        last_error_if(libc::bind(fd, (&raw const address).cast(), size) < 0)?;
        let on: libc::c_int = 1;
        let size = mem::size_of::<libc::c_int>() as libc::socklen_t;
        let set = libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, (&raw const on).cast(), size);
        last_error_if(set < 0)?;
        Ok(socket)
    }
}

#[allow(unsafe_code)]
fn flush_address(interface: &str) -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: `ifreq` is plain data for which zero is valid: it is the address 0.0.0.0, which
    // removes the address of the interface.
    let done = unsafe {
        let mut request: libc::ifreq = mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_addr.sa_family = libc::AF_INET as u16;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw const request)
    };
    last_error_if(done < 0)
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for at in 0..4 {
            let digit = ALPHABET[((bits >> (18 - 6 * at)) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_written_as_go_reads_them() {
        assert_eq!(base64(&[255, 0, 0, 0]), "/wAAAA==");
        assert_eq!(base64(&[255, 255, 255, 252]), "/////A==");
        assert_eq!(base64(&[255; 16]), "/////////////////////w==");
        assert_eq!(base64(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0, 0]), "AAAAAAAAAAAAAP//AAAAAA==");
    }

    #[test]
    fn the_network_of_a_lease_comes_from_its_address_and_prefix() {
        let lease = Lease {
            id: dorm_engine::LeaseId(1),
            namespace: "/run/netns/x".into(),
            interface: "eth0".into(),
            mac: [2, 0, 0, 0, 0, 1],
            address: [10, 0, 0, 2].into(),
            prefix: 30,
            gateway: [10, 0, 0, 1].into(),
        };
        let links = describe(Some(&lease));
        assert_eq!(links["FDBasedLinks"][0]["Routes"][0]["Destination"]["IP"], "10.0.0.0");
        assert_eq!(links["FDBasedLinks"][0]["Routes"][0]["Destination"]["Mask"], "/////A==");
    }
}
