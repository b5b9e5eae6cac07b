use std::collections::BTreeMap;

use super::*;

fn node(id: &str, depth: usize) -> wire::TreeNode {
    wire::TreeNode {
        kind: if depth.is_multiple_of(2) { wire::TreeKind::Sandbox } else { wire::TreeKind::Snapshot },
        id: id.to_owned(),
        name: None,
        state: "running".to_owned(),
        generation: Some(1),
        created_at: None,
        bytes: 0,
        labels: BTreeMap::new(),
        parent: None,
        depth,
    }
}

#[test]
fn lines_join_children_to_their_parent() {
    let mut nodes: Vec<_> = [("a", 0), ("b", 1), ("c", 2), ("d", 2), ("e", 1), ("f", 2), ("g", 0), ("h", 1)]
        .map(|(id, depth)| node(id, depth))
        .into();
    nodes[1].state = "deleted".to_owned();
    nodes[2].name = Some("we\u{1b}b".to_owned());
    nodes[4].bytes = 1536;
    nodes[4].labels.insert("why".to_owned(), "test".to_owned());
    let expected = "\
sandbox a  running  generation 1
├─ snapshot b  (deleted)  generation 1
│  ├─ sandbox c  we�b  running  generation 1
│  └─ sandbox d  running  generation 1
└─ snapshot e  running  generation 1  1.5 KiB  why=test
   └─ sandbox f  running  generation 1
sandbox g  running  generation 1
└─ snapshot h  running  generation 1
";
    assert_eq!(drawn(&nodes, Timestamp::now()), expected);
    assert_eq!(drawn(&[], Timestamp::now()), "");
}

#[test]
fn json_is_nested_as_the_tree_is() {
    let mut nodes: Vec<_> =
        [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("e", 0)].map(|(id, depth)| node(id, depth)).into();
    nodes[2].labels.insert("brace".to_owned(), "}".to_owned());
    let read: serde_json::Value = serde_json::from_str(&nested(&nodes).unwrap()).unwrap();
    let id = |pointer: &str| read.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or("-").to_owned();
    let ids = ["/0/id", "/0/children/0/id", "/0/children/0/children/0/id", "/0/children/1/id", "/1/id"].map(id);
    assert_eq!(ids, ["a", "b", "c", "d", "e"]);
    assert_eq!(read.pointer("/0/children/0/children/0/labels/brace"), Some(&serde_json::json!("}")));
    assert_eq!(nested(&[]).unwrap(), "[]\n");
}

#[test]
fn a_very_deep_tree_is_written() {
    let nodes: Vec<_> = (0..5000).map(|depth| node("x", depth)).collect();
    assert_eq!(nested(&nodes).unwrap().matches("]}").count(), 5000);
    assert_eq!(drawn(&nodes, Timestamp::now()).lines().count(), 5000);
}
