use std::os::unix::fs::symlink;

use futures_util::TryStreamExt as _;

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

fn names(context: &Context) -> Vec<&str> {
    context.listing.entries().map(|(path, _)| path).collect()
}

#[test]
fn what_dockerignore_names_is_not_there() {
    let ignore = "# secrets\n*.key\n/node_modules/\n**/cache\n!keep.key\n";
    let files = [("a.key", ""), ("keep.key", ""), ("node_modules/x", ""), ("src/cache/y", ""), ("src/z", "")];
    let (_home, context) = context(&[&files[..], &[(IGNORE, ignore)]].concat());
    assert_eq!(names(&context), [IGNORE, "keep.key", "src", "src/z"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_has_what_the_listing_has_and_nothing_that_links_lead_to() {
    let (home, _) = context(&[("src/in", "1")]);
    fs::write(home.path().join("secret"), "x").unwrap();
    symlink(home.path().join("secret"), home.path().join("context/link")).unwrap();
    let context = Context::open(&home.path().join("context")).unwrap();
    let bytes: Vec<_> = context.archive().try_collect().await.unwrap();
    let mut archive = tar::Archive::new(std::io::Cursor::new(bytes.concat()));
    let entry = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let entry = entry.unwrap();
        (entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned(), entry.size())
    };
    let found: Vec<_> = archive.entries().unwrap().map(entry).collect();
    let wanted = [("link", 0), ("src", 0), ("src/in", 1)].map(|(path, bytes)| (path.to_owned(), bytes));
    assert_eq!(found, wanted);
}

#[test]
fn the_hash_is_over_names_modes_and_contents() {
    let (home, first) = context(&[("a/x", "1")]);
    let (_home, same) = context(&[("a/x", "1")]);
    let (_home, other) = context(&[("a/x", "2")]);
    assert_eq!(first.hash, same.hash, "the same files are the same wherever they lie");
    assert_ne!(first.hash, other.hash);
    fs::set_permissions(home.path().join("context/a/x"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_ne!(Context::open(&home.path().join("context")).unwrap().hash, first.hash);
}
