//! Searches and changes of files.

use anyhow::Result;
use dorm_client::Sandbox;
use dorm_client::types::{CreateWatcher, FileKind, SearchLimit, Text, WatchKind};
use dorm_client::{Find, Grep};

use crate::cases::{Cases, code_of, eventually};

fn find() -> Find {
    Find { path: "/src".to_owned(), ..Find::default() }
}

fn grep(pattern: &str) -> Grep {
    Grep { path: "/src".to_owned(), pattern: pattern.to_owned(), ..Grep::default() }
}

/// The daemon of the cases, and what they share.
struct On {
    sandbox: Sandbox,
}

crate::cases::area! {
    files_are_found_by_their_name,
    files_are_found_by_their_type_and_depth,
    a_limit_is_reported,
    lines_are_found_by_an_expression,
    case_literals_and_binary_files_can_be_chosen,
    an_expression_that_is_not_valid_is_refused,
    changes_come_as_they_happen,
    changes_below_a_directory_come_too,
    a_watcher_keeps_changes_also_over_a_suspend,
    what_is_not_there_is_neither_searched_nor_watched,
}

#[tokio::test]
async fn searches() {
    let mut cases = Cases::new("searches");
    let sandbox = cases.dormouse().create("base").name("searches").await.unwrap();
    let script = "mkdir -p /src/deep && cd /src && echo 'let A = 1;' > a.rs && printf 'x\nLET b = 2;\n' > deep/b.rs \
                  && printf 'let\\0binary' > data.bin && ln -s a.rs link && mkdir /watched";
    sandbox.exec(script).check().await.unwrap();
    let on = On { sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn files_are_found_by_their_name(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let found = files.find(&Find { name: Some("*.rs".to_owned()), ..find() }).await?;
    let paths: Vec<_> = found.files.iter().map(|file| file.path.to_string()).collect();
    assert_eq!(paths, ["/src/a.rs", "/src/deep/b.rs"]);
    assert_eq!(found.search.truncated_by, None);
    Ok(())
}

async fn files_are_found_by_their_type_and_depth(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let found = files.find(&Find { kind: Some(FileKind::Link), ..find() }).await?;
    assert_eq!(found.files.len(), 1);
    let found = files.find(&Find { kind: Some(FileKind::File), depth: Some(1), ..find() }).await?;
    assert_eq!(found.files.len(), 2);
    Ok(())
}

async fn a_limit_is_reported(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let found = files.find(&Find { limit: Some(1), ..find() }).await?;
    assert_eq!((found.files.len(), found.search.truncated_by), (1, Some(SearchLimit::Results)));
    Ok(())
}

async fn lines_are_found_by_an_expression(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let found = files.grep(&grep("^let [A-Z]")).await?;
    assert_eq!(found.lines.len(), 1);
    let line = &found.lines[0];
    assert_eq!((line.path.to_string().as_str(), line.line), ("/src/a.rs", 1));
    assert_eq!(line.text.to_string(), "let A = 1;");
    Ok(())
}

async fn case_literals_and_binary_files_can_be_chosen(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    assert_eq!(files.grep(&Grep { ignore_case: true, ..grep("^let") }).await?.lines.len(), 2);
    assert_eq!(files.grep(&Grep { literal: true, ..grep("A = 1;") }).await?.lines.len(), 1);
    assert_eq!(files.grep(&Grep { binary: true, ..grep("let") }).await?.lines.len(), 2);
    assert_eq!(files.grep(&Grep { name: Some("b.*".to_owned()), ..grep("=") }).await?.lines.len(), 1);
    Ok(())
}

async fn an_expression_that_is_not_valid_is_refused(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    assert_eq!(code_of(files.grep(&grep("(")).await), "invalid_argument");
    Ok(())
}

async fn changes_come_as_they_happen(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    let mut watch = files.watch("/watched").await?;
    files.write("/watched/new", "x").await?;
    let mut seen = Vec::new();
    while !seen.contains(&"/watched/new".to_owned()) {
        seen.push(watch.next().await?.expect("the stream continues").path.to_string());
    }
    Ok(())
}

async fn changes_below_a_directory_come_too(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    files.mkdir("/watched/below").await?;
    let mut watch = files.watch_all("/watched").await?;
    files.write("/watched/below/file", "x").await?;
    loop {
        let change = watch.next().await?.expect("the stream continues");
        if change.path.to_string() == "/watched/below/file" {
            return Ok(());
        }
    }
}

async fn a_watcher_keeps_changes_also_over_a_suspend(on: &On) -> Result<()> {
    let On { sandbox } = on;
    let files = on.sandbox.files();
    let client = sandbox.client();
    let path = Text::Plain("/watched".to_owned());
    let watcher = client.create_watcher(sandbox.id(), &CreateWatcher { path, recursive: Some(true) }).await?.watcher;
    files.write("/watched/kept", "x").await?;
    sandbox.suspend().await?;
    sandbox.resume().await?;
    eventually("the change is kept", || async {
        let changes = client.take_changes(sandbox.id(), watcher, "0").await?.events;
        let is_new = |kind| matches!(kind, WatchKind::Created | WatchKind::MovedTo);
        Ok(changes.iter().any(|change| is_new(change.kind) && change.path.to_string() == "/watched/kept"))
    })
    .await?;
    assert_eq!(client.watchers(sandbox.id()).await?.watchers.len(), 1);
    client.remove_watcher(sandbox.id(), watcher).await?;
    assert_eq!(client.watchers(sandbox.id()).await?.watchers.len(), 0);
    Ok(())
}

async fn what_is_not_there_is_neither_searched_nor_watched(on: &On) -> Result<()> {
    let files = on.sandbox.files();
    assert_eq!(code_of(files.find(&Find { path: "/none".to_owned(), ..Find::default() }).await), "not_found");
    assert_eq!(code_of(files.watch("/none").await), "not_found");
    Ok(())
}
