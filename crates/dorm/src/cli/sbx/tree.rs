//! `dorm sbx tree`.

use dorm_api_types as wire;
use dorm_client::Client;
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::shown;
use crate::exit;

/// Options of `dorm sbx tree`.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeOptions {
    /// Show only the tree of this sandbox, by id or name. By default all trees are shown
    id: Option<String>,
    /// Include terminated sandboxes and deleted snapshots that have no descendants left
    #[arg(short, long)]
    all: bool,
}

/// Prints the tree.
pub(super) async fn run(client: &Client, options: TreeOptions, format: Format) -> Done {
    let tree = client.tree(options.id.as_deref(), options.all).await?;
    match format {
        Format::Json => output::write(nested(&tree.nodes)?.as_bytes())?,
        Format::Table => output::write(drawn(&tree.nodes, Timestamp::now()).as_bytes())?,
    }
    Ok(exit::OK)
}

/// Returns one line for each node, connected by lines.
fn drawn(nodes: &[wire::TreeNode], now: Timestamp) -> String {
    // For each depth: whether a later line has the same parent.
    let mut open: Vec<bool> = Vec::new();
    let mut lines = Vec::with_capacity(nodes.len());
    for node in nodes.iter().rev() {
        open.resize(node.depth + 1, false);
        let mut line: String =
            open.iter().take(node.depth).skip(1).map(|open| if *open { "│  " } else { "   " }).collect();
        if node.depth > 0 {
            line.push_str(if open[node.depth] { "├─ " } else { "└─ " });
        }
        open[node.depth] = true;
        line.push_str(&described(node, now));
        line.push('\n');
        lines.push(line);
    }
    lines.into_iter().rev().collect()
}

fn described(node: &wire::TreeNode, now: Timestamp) -> String {
    let deleted = node.state == "deleted";
    let state = if deleted { "(deleted)" } else { &node.state };
    let mut parts = vec![format!("{} {}", shown::word(&node.kind), node.id)];
    parts.extend(node.name.clone());
    parts.push(state.to_owned());
    parts.extend(node.generation.map(|generation| format!("generation {generation}")));
    parts.extend(node.created_at.map(|at| shown::age(at, now)));
    parts.extend((node.bytes > 0).then(|| shown::size(node.bytes)));
    parts.extend(node.labels.iter().map(|(key, value)| format!("{key}={value}")));
    output::harmless(&parts.join("  ")).replace('\n', " ")
}

/// A node as JSON, without the fields that nesting expresses.
#[derive(Serialize)]
struct Own<'a> {
    kind: wire::TreeKind,
    id: &'a str,
    name: Option<&'a str>,
    state: &'a str,
    generation: Option<u64>,
    created_at: Option<wire::Time>,
    bytes: u64,
    labels: &'a std::collections::BTreeMap<String, String>,
}

/// Returns a list of roots, each with its `children`. It is written line by line, without recursion
/// as deep as the tree.
fn nested(nodes: &[wire::TreeNode]) -> Result<String, Problem> {
    let mut text = String::from("[");
    let mut depth = None;
    for node in nodes {
        if let Some(before) = depth {
            match node.depth > before {
                true => {}
                false => text.push_str(&"]}".repeat(before - node.depth + 1)),
            }
            if node.depth <= before {
                text.push(',');
            }
        }
        let wire::TreeNode { kind, id, name, state, generation, created_at, bytes, labels, parent: _, depth: at } =
            node;
        let (kind, generation, created_at, bytes) = (*kind, *generation, *created_at, *bytes);
        let own = Own { kind, id, name: name.as_deref(), state, generation, created_at, bytes, labels };
        let own =
            serde_json::to_string(&own).map_err(|error| Problem::failed(format!("cannot write JSON: {error}"), ""))?;
        text.push('\n');
        text.push_str(own.strip_suffix('}').unwrap_or(&own));
        text.push_str(",\"children\":[");
        depth = Some(*at);
    }
    text.push_str(&"]}".repeat(depth.map_or(0, |depth| depth + 1)));
    text.push_str("]\n");
    Ok(text)
}

#[cfg(test)]
mod tests;
