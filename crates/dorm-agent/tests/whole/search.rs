//! Searches in files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use dorm_agent_client::{
    AgentError, BinaryFiles, Case, FileKind, FoundFiles, LinePattern, SearchLimit, SearchLimits, SearchSpec, Syntax,
};

use crate::support::{Sandbox, within};

const LIMITS: SearchLimits = SearchLimits { results: 1000, entries: 100_000, bytes: 1 << 30, time_ms: 100_000 };

fn search(sandbox: &Sandbox, path: &str, pattern: Option<&str>) -> SearchSpec {
    SearchSpec {
        path: sandbox.path(path),
        depth: None,
        name: None,
        kind: None,
        lines: pattern.map(|pattern| LinePattern {
            pattern: pattern.to_owned(),
            syntax: Syntax::Regex,
            binary: BinaryFiles::Skip,
        }),
        case: Case::Counts,
        limits: LIMITS,
    }
}

fn names(sandbox: &Sandbox, found: &FoundFiles) -> Vec<String> {
    let prefix = sandbox.path("tree").to_text();
    found.entries.iter().map(|entry| entry.path.to_text()[prefix.len() + 1..].to_owned()).collect()
}

/// A tree with everything that a search must cope with.
async fn hostile() -> Sandbox {
    let sandbox = Sandbox::new().await;
    let tree = sandbox.host_path("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/needle.rs"), "first\nthe needle is here\nlast, without an end").unwrap();
    fs::write(tree.join("a/two.txt"), "NEEDLE\nneedle\n").unwrap();
    fs::write(tree.join("binary"), b"\0needle\n").unwrap();
    fs::write(tree.join(OsStr::from_bytes(b"\xff\xfe.rs")), b"\xffneedle\xff\n").unwrap();
    symlink("..", tree.join("a/loop")).unwrap();
    symlink("/proc", tree.join("a/proc")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(tree.join("pipe")).status().unwrap();
    assert!(made.success());
    sandbox
}

#[tokio::test]
async fn files_are_found_by_name_type_and_depth_without_following_links() {
    let sandbox = hostile().await;
    let find = async |change: fn(&mut SearchSpec)| {
        let mut spec = search(&sandbox, "tree", None);
        change(&mut spec);
        let found = within(sandbox.agent.find_files(spec)).await.unwrap();
        assert_eq!(found.summary.stopped, None);
        names(&sandbox, &found)
    };
    let all = ["a", "a/b", "a/b/needle.rs", "a/loop", "a/proc", "a/two.txt", "binary", "pipe", "\u{fffd}\u{fffd}.rs"];
    assert_eq!(find(|_| ()).await, all);
    assert_eq!(find(|spec| spec.depth = Some(1)).await, ["a", "binary", "pipe", "\u{fffd}\u{fffd}.rs"]);
    assert_eq!(find(|spec| spec.name = Some("*.rs".to_owned())).await, ["a/b/needle.rs", "\u{fffd}\u{fffd}.rs"]);
    assert_eq!(find(|spec| spec.name = Some("a/**/*.rs".to_owned())).await, ["a/b/needle.rs"]);
    assert_eq!(find(|spec| spec.kind = Some(FileKind::Link)).await, ["a/loop", "a/proc"]);
    assert_eq!(find(|spec| spec.kind = Some(FileKind::Other)).await, ["pipe"]);
}

#[tokio::test]
async fn lines_are_found_in_regular_files_only() {
    let sandbox = hostile().await;
    let found = within(sandbox.agent.find_lines(search(&sandbox, "tree", Some("need.e")))).await.unwrap();
    let lines: Vec<_> = found.lines.iter().map(|line| (line.line, line.at, line.text.0.as_slice())).collect();
    let expected: [(u64, u64, &[u8]); 3] =
        [(2, 4, b"the needle is here"), (2, 0, b"needle"), (1, 1, b"\xffneedle\xff")];
    assert_eq!(lines, expected);
    assert_eq!((found.summary.binary, found.summary.unreadable, found.summary.stopped), (1, 0, None));
    assert_eq!(found.lines[2].path.as_bytes(), [sandbox.path("tree").as_bytes(), b"/\xff\xfe.rs"].concat());
    let mut spec = search(&sandbox, "tree", Some("NEEDLE"));
    spec.case = Case::Ignored;
    spec.name = Some("*.TXT".to_owned());
    let found = within(sandbox.agent.find_lines(spec)).await.unwrap();
    assert_eq!(found.lines.iter().map(|line| line.line).collect::<Vec<_>>(), [1, 2]);
    let mut spec = search(&sandbox, "tree/binary", Some("needle"));
    spec.lines.as_mut().unwrap().binary = BinaryFiles::Search;
    let found = within(sandbox.agent.find_lines(spec)).await.unwrap();
    assert_eq!(found.lines[0].text.0, b"\0needle");
}

#[tokio::test]
async fn a_search_ends_at_its_limits_and_says_at_which() {
    let sandbox = Sandbox::new().await;
    fs::create_dir(sandbox.host_path("many")).unwrap();
    for number in 0..3000 {
        fs::write(sandbox.host_path(&format!("many/{number:05}")), "line\n".repeat(10)).unwrap();
    }
    let run = async |pattern, limits| {
        let spec = SearchSpec { limits, ..search(&sandbox, "many", pattern) };
        match pattern {
            None => within(sandbox.agent.find_files(spec)).await.unwrap().summary,
            Some(_) => within(sandbox.agent.find_lines(spec)).await.unwrap().summary,
        }
    };
    assert_eq!(run(None, LIMITS).await.stopped, Some(SearchLimit::Results));
    let exact = run(None, SearchLimits { results: 3000, ..LIMITS }).await;
    assert_eq!((exact.stopped, exact.entries), (None, 3000));
    let entries = run(Some("none"), SearchLimits { entries: 10, ..LIMITS }).await;
    assert_eq!((entries.stopped, entries.entries), (Some(SearchLimit::Entries), 10));
    let bytes = run(Some("none"), SearchLimits { bytes: 125, ..LIMITS }).await;
    assert_eq!((bytes.stopped, bytes.bytes), (Some(SearchLimit::Bytes), 125));
    assert_eq!(run(None, SearchLimits { time_ms: 0, ..LIMITS }).await.stopped, Some(SearchLimit::Time));
    assert_eq!(run(Some("l"), SearchLimits { results: 10_000, ..LIMITS }).await.stopped, Some(SearchLimit::Results));
    // Long lines reach the limit of the whole before that of the number.
    fs::write(sandbox.host_path("many/0"), format!("{}\n", "x".repeat(2000)).repeat(9000)).unwrap();
    assert_eq!(run(Some("x"), SearchLimits { results: 10_000, ..LIMITS }).await.stopped, Some(SearchLimit::Size));
}

fn at(spec: &mut SearchSpec, path: &str) {
    spec.path = path.try_into().unwrap();
}

#[tokio::test]
async fn what_cannot_be_searched_is_refused() {
    let sandbox = hostile().await;
    let refused = async |change: fn(&mut SearchSpec)| {
        let mut spec = search(&sandbox, "tree", Some("x"));
        change(&mut spec);
        within(sandbox.agent.find_lines(spec)).await.unwrap_err()
    };
    assert!(matches!(refused(|spec| at(spec, "/proc")).await, AgentError::Invalid(_)));
    assert!(matches!(refused(|spec| at(spec, "/proc/self/mem")).await, AgentError::Invalid(_)));
    assert!(matches!(refused(|spec| at(spec, "/nowhere")).await, AgentError::NotFound(_)));
    assert!(matches!(refused(|spec| at(spec, "/dev/zero")).await, AgentError::NotAFile(_)));
    assert!(matches!(
        refused(|spec| spec.lines.as_mut().unwrap().pattern = "(".to_owned()).await,
        AgentError::Invalid(_)
    ));
    assert!(matches!(refused(|spec| spec.name = Some("[".to_owned())).await, AgentError::Invalid(_)));
}

#[tokio::test]
async fn a_search_that_nobody_waits_for_ends() {
    let sandbox = Sandbox::new().await;
    // It would take hours.
    fs::File::create(sandbox.host_path("huge")).unwrap().set_len(1 << 43).unwrap();
    let mut spec = search(&sandbox, "", Some("needle"));
    spec.lines.as_mut().unwrap().binary = BinaryFiles::Search;
    spec.limits = SearchLimits { bytes: u64::MAX, time_ms: u64::MAX, ..LIMITS };
    // More than there may be at a time, so that those before must have ended.
    for _ in 0..100 {
        let searching = sandbox.agent.find_lines(spec.clone());
        let patience = std::time::Duration::from_millis(20);
        match tokio::time::timeout(patience, searching).await {
            Err(_) | Ok(Err(AgentError::TooManyOpen { .. })) => {}
            Ok(other) => panic!("{other:?}"),
        }
    }
    spec.limits = SearchLimits { bytes: 1, ..LIMITS };
    let found = within(async {
        loop {
            match sandbox.agent.find_lines(spec.clone()).await {
                Err(AgentError::TooManyOpen { .. }) => tokio::task::yield_now().await,
                found => return found,
            }
        }
    });
    assert_eq!(found.await.unwrap().summary.stopped, Some(SearchLimit::Bytes));
}
