//! `dorm sbx cp`: copies files and directories into a sandbox or out of it.
//!
//! On either side a file appears complete or not at all: it is written under another name first.
//! Entries that cannot be copied (devices, and symbolic links on the way in) are named, and the
//! exit code says that something is missing.

mod download;
pub(in crate::cli) mod place;
mod upload;

use std::path::PathBuf;

use dorm_client::Client;

use super::super::output;
use crate::cli::problem::{Done, Problem};
use crate::exit;

/// Options of `dorm sbx cp`.
#[derive(Debug, clap::Args)]
pub(crate) struct CpOptions {
    /// Source: a path on this host, ID:/path in a sandbox, or - for standard input
    source: String,
    /// Destination: a path on this host, ID:/path in a sandbox, or - for standard output. A copy
    /// into an existing directory keeps its name
    destination: String,
    /// Resume the sandbox first if it is suspended, whatever wakes it otherwise
    #[arg(long)]
    wake: bool,
}

/// One end of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
enum End {
    Inside { sandbox: String, path: String },
    Here(PathBuf),
    Stream,
}

/// The number of entries that were not copied.
#[derive(Default)]
struct Skipped(usize);

impl Skipped {
    fn add(&mut self, path: &str, why: &str) {
        output::talk(&format!("skipped {path}: {why}"));
        self.0 += 1;
    }

    fn done(self) -> Done {
        match self.0 {
            0 => Ok(exit::OK),
            count => Err(Problem::failed(format!("entries not copied: {count}; all others were copied"), "")),
        }
    }
}

/// Runs `dorm sbx cp`.
pub(super) async fn run(client: &Client, options: CpOptions) -> Done {
    let waking = client.waking();
    let client = if options.wake { &waking } else { client };
    let destination_is_directory = options.destination.ends_with('/');
    match (end(&options.source)?, end(&options.destination)?) {
        (End::Inside { sandbox, path }, End::Stream) => download::to_stdout(client, &sandbox, &path).await,
        (End::Inside { sandbox, path }, End::Here(to)) => download::run(client, &sandbox, &path, &to).await,
        (End::Stream, End::Inside { sandbox, path }) => upload::from_stdin(client, &sandbox, &path).await,
        (End::Here(from), End::Inside { sandbox, path }) => {
            upload::run(client, &from, &sandbox, &path, destination_is_directory).await
        }
        (End::Inside { .. }, End::Inside { .. }) => Err(Problem::usage(
            "both paths are in sandboxes",
            "copy through this host: dorm sbx cp A:/file - | dorm sbx cp - B:/file",
        )),
        (End::Here(_) | End::Stream, End::Here(_) | End::Stream) => {
            Err(Problem::usage("neither path is in a sandbox", "write a path in a sandbox as ID:/path"))
        }
    }
}

fn end(text: &str) -> Result<End, Problem> {
    if text == "-" {
        return Ok(End::Stream);
    }
    let (sandbox, path) = match text.split_once(':') {
        Some((sandbox, path)) if !sandbox.is_empty() && !sandbox.contains('/') => (sandbox, path),
        _ if text.is_empty() => return Err(Problem::usage("a path is empty", "name a file")),
        _ => return Ok(End::Here(text.into())),
    };
    if !path.starts_with('/') {
        let next = format!("start it with /, or write ./{text} for a file on this host");
        return Err(Problem::usage(format!("the path '{path}' in {sandbox} is not absolute"), next));
    }
    let path = if path == "/" { path } else { path.trim_end_matches('/') };
    let path = if path.is_empty() { "/" } else { path };
    Ok(End::Inside { sandbox: sandbox.to_owned(), path: path.to_owned() })
}

/// Joins a path in a sandbox and a name.
fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

/// Returns the last component of a path in a sandbox.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(sandbox: &str, path: &str) -> End {
        End::Inside { sandbox: sandbox.to_owned(), path: path.to_owned() }
    }

    #[test]
    fn the_part_before_a_colon_is_a_sandbox() {
        for (text, expected) in [
            ("-", End::Stream),
            ("web:/a/b", inside("web", "/a/b")),
            ("web:/a/b/", inside("web", "/a/b")),
            ("web:/", inside("web", "/")),
            ("web://", inside("web", "/")),
            ("./web:/a", End::Here("./web:/a".into())),
            ("/a:b", End::Here("/a:b".into())),
            ("plain", End::Here("plain".into())),
        ] {
            assert_eq!(end(text).unwrap(), expected, "{text}");
        }
        assert!(end("web:relative").is_err() && end("").is_err() && end("web:").is_err());
    }

    #[test]
    fn paths_inside_are_joined_with_one_slash() {
        assert_eq!((join("/", "a"), join("/a", "b")), ("/a".to_owned(), "/a/b".to_owned()));
        assert_eq!((name_of("/a/b"), name_of("/")), ("b", ""));
    }
}
