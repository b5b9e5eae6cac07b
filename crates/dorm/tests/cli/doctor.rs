//! `dorm doctor`.

use serde_json::Value;

use crate::world::{bare, end};

#[tokio::test]
async fn each_check_has_a_verdict_and_the_worst_one_decides() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let ran = end(bare(&["doctor", "--data", data, "-o", "json"]), b"").await;
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(
        names.join(", "),
        "user, kernel, runsc, memory images, restored memory, cgroups, user namespaces, loop devices, kvm, connections, nft, traffic shaping, mkfs.ext4, disk space, data path, data mount, reflink, data directory, guest ids, damage, records"
    );
    let fails = checks.iter().any(|check| check["verdict"] == "fail");
    assert_eq!((report["usable"].as_bool(), ran.code), (Some(!fails), i32::from(fails)), "{report}");
    for check in checks {
        let is_fine = check["verdict"] == "ok";
        assert_eq!(check["next_step"].as_str().unwrap().is_empty(), is_fine, "{check}");
    }
    assert!(!directory.path().join("data").exists(), "it only looks");
}

#[tokio::test]
async fn a_missing_runsc_fails_and_says_what_to_do() {
    let ran = end(bare(&["doctor", "--runsc", "/nonexistent/runsc"]), b"").await;
    assert_eq!(ran.code, 1);
    let text = ran.text();
    let line = text.lines().position(|line| line.starts_with("fail  runsc ")).unwrap();
    assert!(text.lines().nth(line + 1).unwrap().trim().starts_with("next: install runsc"), "{text}");
    assert!(text.ends_with("The daemon cannot run on this host yet.\n"), "{text}");
}
