use super::*;

fn id(number: u64) -> [u8; 20] {
    let mut bytes = [0; 20];
    // The first character of an id has fewer values than the others.
    for (at, byte) in bytes[1..12].iter_mut().enumerate() {
        *byte = u8::try_from((number >> (5 * at)) & 31).unwrap();
    }
    bytes
}

fn sandbox_id(number: u64) -> TreeId {
    TreeId::Sandbox(SandboxId::from_random(id(number)))
}

fn snapshot_id(number: u64) -> TreeId {
    TreeId::Snapshot(SnapshotId::from_random(id(number)))
}

fn node(id: TreeId, number: u64, state: TreeState, parent: Option<TreeId>) -> TreeNode {
    TreeNode {
        id,
        name: Some(number.to_string()),
        state,
        generation: Some(1),
        created: Some(Timestamp::from_millis(number)),
        bytes: 0,
        labels: BTreeMap::new(),
        parent,
        depth: 0,
    }
}

fn running(number: u64, parent: Option<u64>) -> TreeNode {
    node(sandbox_id(number), number, TreeState::Sandbox(StateName::Running), parent.map(snapshot_id))
}

fn over(number: u64, parent: Option<u64>) -> TreeNode {
    node(sandbox_id(number), number, TreeState::Sandbox(StateName::Terminated), parent.map(snapshot_id))
}

fn snapshot(number: u64, source: u64) -> TreeNode {
    let state = TreeState::Snapshot(SnapshotStatus::Completed);
    node(snapshot_id(number), number, state, Some(sandbox_id(source)))
}

fn deleted(number: u64) -> TreeNode {
    node(snapshot_id(number), number, TreeState::Deleted, None)
}

/// Returns depth and name of each line.
fn lines(nodes: Vec<TreeNode>, filter: &TreeFilter) -> Vec<(usize, String)> {
    tree(nodes, filter).into_iter().map(|node| (node.depth, node.name.unwrap())).collect()
}

fn told(lines: &[(usize, String)]) -> Vec<(usize, &str)> {
    lines.iter().map(|(depth, name)| (*depth, name.as_str())).collect()
}

fn only(number: u64) -> TreeFilter {
    let TreeId::Sandbox(sandbox) = sandbox_id(number) else { panic!("a sandbox") };
    TreeFilter { sandbox: Some(sandbox), all: false }
}

#[test]
fn each_comes_after_its_parent_the_oldest_first() {
    let nodes = vec![
        running(6, Some(3)),
        running(5, Some(3)),
        snapshot(3, 1),
        snapshot(4, 1),
        running(2, None),
        running(1, None),
    ];
    let lines = lines(nodes, &TreeFilter::default());
    assert_eq!(told(&lines), [(0, "1"), (1, "3"), (2, "5"), (2, "6"), (1, "4"), (0, "2")]);
}

#[test]
fn what_is_over_is_shown_where_something_came_of_it_or_when_it_is_asked_for() {
    let nodes = || vec![over(1, None), snapshot(2, 1), running(3, Some(2)), over(4, Some(2)), over(5, None)];
    let all = TreeFilter { all: true, ..TreeFilter::default() };
    assert_eq!(told(&lines(nodes(), &TreeFilter::default())), [(0, "1"), (1, "2"), (2, "3")]);
    assert_eq!(lines(nodes(), &all).len(), 5);
    assert_eq!(told(&lines(nodes(), &only(4))), [(0, "1"), (1, "2"), (2, "3"), (2, "4")]);
    assert_eq!(told(&lines(nodes(), &only(5))), [(0, "5")]);
}

#[test]
fn one_tree_is_shown_from_its_root() {
    let nodes = || vec![running(1, None), snapshot(2, 1), running(3, Some(2)), running(4, None), snapshot(5, 4)];
    assert_eq!(told(&lines(nodes(), &only(3))), [(0, "1"), (1, "2"), (2, "3")]);
    assert_eq!(told(&lines(nodes(), &only(4))), [(0, "4"), (1, "5")]);
}

#[test]
fn a_parent_that_is_not_on_record_makes_a_root_and_a_deleted_snapshot_is_one() {
    let nodes = vec![snapshot(2, 99), deleted(7), running(8, Some(7)), deleted(9), over(10, Some(9))];
    let shown = tree(nodes, &TreeFilter::default());
    assert!(shown[0].parent.is_none());
    let names: Vec<_> = shown.iter().map(|node| (node.depth, node.name.as_deref().unwrap())).collect();
    assert_eq!(names, [(0, "2"), (0, "7"), (1, "8")], "nothing is left of 9");
}

#[test]
fn a_ring_is_opened_at_its_oldest() {
    let nodes = vec![snapshot(3, 2), running(2, Some(3)), running(4, Some(3)), snapshot(6, 5), running(5, Some(6))];
    let lines = lines(nodes, &TreeFilter::default());
    assert_eq!(told(&lines), [(0, "2"), (1, "3"), (2, "4"), (0, "5"), (1, "6")]);
}

#[test]
fn a_chain_may_be_very_long() {
    let mut nodes = vec![running(0, None)];
    for number in (1..100_000).step_by(2) {
        nodes.push(snapshot(number, number - 1));
        nodes.push(running(number + 1, Some(number)));
    }
    let shown = tree(nodes, &only(50_000));
    assert_eq!(shown.len(), 100_001);
    assert_eq!(shown.last().map(|node| node.depth), Some(100_000));
}
