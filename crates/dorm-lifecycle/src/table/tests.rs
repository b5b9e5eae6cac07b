//! The complete relation of states and inputs as text, so that every change of it is visible in a
//! diff.

use std::path::Path;

use super::*;

fn compare(path: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("DORM_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("make the directory");
        std::fs::write(&path, made).expect("write");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "{} is not what step() does: run with DORM_UPDATE=1 and check the change", path.display());
}

#[test]
fn every_state_answers_every_input_as_written_down() {
    compare("src/table/relation.txt", &relation());
}

#[test]
fn the_documents_show_what_step_does() {
    compare("../../docs/reference/lifecycle.md", &markdown());
}
