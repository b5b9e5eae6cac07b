//! The meaning of a layer's entries: whiteouts, which mark removals, and links to files of an
//! earlier layer.

use super::{Links, OPAQUE, WHITEOUT};
use crate::images::node::{GuestPath, Kind, Node, Refusal};
use crate::images::tree::Tree;

const LINKS_MAX: usize = 10_000;
/// The prefix of names that older tools use internally.
const PRIVATE: &[u8] = b".wh..wh.";

/// The parts of one layer's entries that files cannot represent.
#[derive(Default)]
pub(in crate::images) struct LayerEntries {
    pub(in crate::images) links: Links,
}

impl LayerEntries {
    /// Returns what to write for an entry; `None` if there is nothing to write.
    pub(in crate::images) fn read(&mut self, node: Node, tree: &Tree) -> Result<Option<Node>, Refusal> {
        let Some((directory, name)) = node.path.split() else { return Ok(Some(node)) };
        let mut above = directory.split(|byte| *byte == b'/');
        if above.clone().any(|part| part.starts_with(PRIVATE)) {
            return Ok(None);
        }
        if above.any(|part| part.starts_with(WHITEOUT)) {
            return Err(Refusal::because("is inside a whiteout"));
        }
        if name.starts_with(WHITEOUT) {
            return if name == OPAQUE {
                Ok(Some(mark(node)))
            } else if name.starts_with(PRIVATE) {
                Ok(None)
            } else if matches!(&name[WHITEOUT.len()..], b"" | b"." | b"..") {
                Err(Refusal::because("is a whiteout with an invalid name"))
            } else {
                Ok(Some(mark(node)))
            };
        }
        match &node.kind {
            Kind::HardLink(target) if !tree.has(target) => {
                if self.links.len() >= LINKS_MAX {
                    return Err(Refusal::because(
                        "exceeds the limit of 10,000 hard links from one layer to the layers below it",
                    ));
                }
                self.links.push((node.path.as_bytes().to_vec(), target.as_bytes().to_vec()));
                Ok(None)
            }
            _ => Ok(Some(node)),
        }
    }
}

/// Returns an empty file with the name of the entry.
fn mark(node: Node) -> Node {
    let path: GuestPath = node.path;
    Node { path, kind: Kind::File(0), mode: 0, user: 0, group: 0, modified: 0, capability: None }
}
