use std::os::unix::fs::symlink;

use super::*;

fn context(files: &[(&str, &str)]) -> (tempfile::TempDir, Context) {
    let home = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = home.path().join("context").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let context = Context::open(&home.path().join("context")).unwrap();
    (home, context)
}

fn names(context: &Context, sources: &[&str]) -> Vec<String> {
    let sources: Vec<_> = sources.iter().map(|source| (*source).to_owned()).collect();
    let name = |found: &Found| match found.name.is_empty() {
        true => found.below.display().to_string(),
        false => found.name.clone(),
    };
    context.collect(&sources).unwrap().found.iter().map(name).collect()
}

#[test]
fn a_directory_stands_for_what_is_in_it_and_a_pattern_for_what_it_matches() {
    let (_home, context) = context(&[("a/x", "1"), ("a/b/y", "2"), ("one.txt", "3"), ("two.txt", "4")]);
    assert_eq!(names(&context, &["a"]), ["b", "b/y", "x"]);
    assert_eq!(names(&context, &["*.txt"]), ["one.txt", "two.txt"]);
    assert_eq!(names(&context, &["./a/../one.txt"]), ["one.txt"]);
    assert_eq!(names(&context, &["."]), ["a", "a/b", "a/b/y", "a/x", "one.txt", "two.txt"]);
    assert!(context.collect(&["one.txt".into()]).unwrap().is_one_file);
    assert!(!context.collect(&["a".into()]).unwrap().is_one_file);
}

#[test]
fn what_dockerignore_names_is_not_there() {
    let ignore = "# secrets\n*.key\n/node_modules/\n**/cache\n!keep.key\n";
    let files = [("a.key", ""), ("keep.key", ""), ("node_modules/x", ""), ("src/cache/y", ""), ("src/z", "")];
    let (_home, context) = context(&[&files[..], &[(IGNORE, ignore)]].concat());
    assert_eq!(names(&context, &["."]), [IGNORE, "keep.key", "src", "src/z"]);
    let error = context.collect(&["a.key".into()]).unwrap_err();
    assert_eq!(error.exit_code(), crate::exit::NOT_FOUND);
}

#[test]
fn nothing_outside_is_read() {
    let (home, context) = context(&[("in", "1")]);
    fs::write(home.path().join("secret"), "x").unwrap();
    symlink(home.path().join("secret"), home.path().join("context/link")).unwrap();
    for path in ["../secret", "a/../../secret", "link", "nothing", "*.none"] {
        assert!(context.collect(&[path.to_owned()]).is_err(), "{path}");
    }
    // A link in a copied directory is copied as a link.
    let files = context.collect(&[".".to_owned()]).unwrap();
    assert!(files.found.iter().any(|found| matches!(&found.kind, Kind::Link(_))));
}

#[test]
fn the_hash_is_over_names_modes_and_contents() {
    let (home, context) = context(&[("a/x", "1"), ("b/x", "1"), ("c/x", "2"), ("d/y", "1")]);
    let hash = |path: &str| context.collect(&[path.to_owned()]).unwrap().hash;
    assert_eq!(hash("a"), hash("b"), "the same files are the same wherever they lie");
    assert_ne!(hash("a"), hash("c"));
    assert_ne!(hash("a"), hash("d"));
    let before = hash("a");
    fs::set_permissions(home.path().join("context/a/x"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(hash("a"), before);
}
