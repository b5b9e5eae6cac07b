//! Help texts and usage errors.

use crate::world::{bare, end};

#[tokio::test]
async fn help_names_every_verb_and_exit_code() {
    let ran = end(bare(&["--help"]), b"").await;
    assert_eq!(ran.code, 0);
    for word in ["serve", "doctor", "sbx", "image", "events", "Exit codes:", "125", "DORM_KEY"] {
        assert!(ran.text().contains(word), "{word}: {}", ran.text());
    }
    let ran = end(bare(&["sbx", "--help"]), b"").await;
    for verb in [
        "create",
        "ls",
        "describe",
        "exec",
        "run",
        "shell",
        "cp",
        "suspend",
        "resume",
        "evict",
        "terminate",
        "checkpoint",
        "clone",
        "fork",
        "rewind",
        "restart",
        "promote",
        "diff",
        "tree",
        "timeout",
        "port",
        "usage",
    ] {
        assert!(ran.text().contains(&format!("\n  {verb} ")), "{verb}: {}", ran.text());
    }
    assert_eq!(end(bare(&["--version"]), b"").await.text(), format!("dorm {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn what_is_not_understood_is_2() {
    for arguments in
        [&["dance"][..], &["sbx"], &["sbx", "ls", "--colour"], &["image", "import"], &["-o", "xml", "sbx", "ls"]]
    {
        let ran = end(bare(arguments), b"").await;
        assert_eq!((ran.code, ran.text().as_str()), (2, ""), "{arguments:?}: {ran:?}");
    }
}
