//! The number of the last change of the packet rules in a network namespace, which the kernel
//! counts. Rules that were set are still set if the number is the same.

use std::io;

use netlink_packet_core::{NLM_F_REQUEST, NlasIterator};
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::links::netlink;

/// The kernel's `NFNL_SUBSYS_NFTABLES`, in the upper half of the type of a message.
const NFTABLES: u16 = 10 << 8;
const NFT_MSG_NEWGEN: u16 = NFTABLES | 15;
const NFT_MSG_GETGEN: u16 = NFTABLES | 16;
const NFTA_GEN_ID: u16 = 1;
/// The size of `struct nlmsghdr` and `struct nfgenmsg`, after which the attributes begin.
const HEADERS: usize = 20;

/// Asks in the namespace of the calling thread.
///
/// # Errors
/// When the kernel does not answer with a number, because it has no nftables.
pub(crate) fn generation() -> io::Result<u32> {
    let netlink = netlink(NETLINK_NETFILTER)?;
    let (kind, flags) = (NFT_MSG_GETGEN.to_ne_bytes(), NLM_F_REQUEST.to_ne_bytes());
    netlink.send(&[&20_u32.to_ne_bytes()[..], &kind, &flags, &[0; 12]].concat(), 0)?;
    let (answer, _) = netlink.recv_from_full()?;
    number(&answer).ok_or_else(|| io::Error::other("the kernel does not number the changes of its packet rules"))
}

fn number(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != NFT_MSG_NEWGEN {
        return None;
    }
    let mut found = NlasIterator::new(answer.get(HEADERS..)?).filter_map(Result::ok);
    let attribute = found.find(|attribute| attribute.kind() == NFTA_GEN_ID)?;
    Some(u32::from_be_bytes(attribute.value().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_read_from_its_attribute() {
        let attribute = [&[8, 0, 1, 0][..], &7_u32.to_be_bytes()].concat();
        let answer = |kind: u16| [&[36, 0, 0, 0][..], &kind.to_ne_bytes(), &[0; 14], &attribute].concat();
        assert_eq!(number(&answer(NFT_MSG_NEWGEN)), Some(7));
        assert_eq!(number(&answer(2)), None, "an error");
        assert_eq!(number(&answer(NFT_MSG_NEWGEN)[..20]), None);
        assert_eq!(number(&[]), None);
    }
}
