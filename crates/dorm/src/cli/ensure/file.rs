//! The file with the definition of an environment: the body of `POST /v1/ensure` as TOML. In
//! addition, `source.directory` names a directory whose files are uploaded.

use std::path::{Path, PathBuf};

use dorm_api_types as wire;
use toml::{Table, Value};

use crate::cli::problem::Problem;

/// A definition that was read.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) request: wire::EnsureRequest,
    /// The directory whose files are the source.
    pub(super) directory: Option<PathBuf>,
}

impl Definition {
    /// Reads a file. Paths in it are relative to its directory.
    pub(super) fn read(path: &Path) -> Result<Self, Problem> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message = format!("there is no {}", path.display());
                return Err(Problem::not_found(message, "write one with `dorm env init`, or name one with --file"));
            }
            other => other.map_err(|error| Problem::host(format!("read {}", path.display()), &error))?,
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::parse(&text, parent).map_err(|problem| problem.during(&path.display().to_string()))
    }

    fn parse(text: &str, parent: &Path) -> Result<Self, Problem> {
        let wrong = |error: toml::de::Error| Problem::usage(error.message().to_owned(), place(text, &error));
        let mut table: Table = text.parse().map_err(wrong)?;
        let mut directory = None;
        if let Some(Value::Table(source)) = table.get_mut("source")
            && let Some(of) = source.remove("directory")
        {
            let Value::String(of) = of else {
                return Err(Problem::usage("source.directory is not a text", "give the path of a directory"));
            };
            if !source.is_empty() {
                return Err(Problem::usage("a source has exactly one of git, context and directory", ""));
            }
            directory = Some(parent.join(of));
            table.remove("source");
        }
        // Once more from the text, for a message that names the line.
        let request = table.try_into().map_err(wrong)?;
        Ok(Self { request, directory })
    }
}

/// Returns the line of an error, if that is known.
fn place(text: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else { return String::new() };
    let line = text.get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1;
    format!("see line {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_the_request_as_toml() {
        let text = r#"
            key = "web"
            image = "base"
            setup = ["npm ci", { parallel = ["npm run build", "npm test"] }]
            [source.git]
            url = "https://example.com/web.git"
            ref = "main"
            [lifecycle]
            snapshot = "after_setup"
            keep_alive_secs = 600
        "#;
        let Definition { request, directory } = Definition::parse(text, Path::new("/p")).unwrap();
        assert_eq!((request.key.as_deref(), directory), (Some("web"), None));
        let parallel = wire::ParallelSetup { parallel: vec!["npm run build".to_owned(), "npm test".to_owned()] };
        let setup = [wire::SetupStep::Command("npm ci".to_owned()), wire::SetupStep::Parallel(parallel)];
        assert_eq!(request.setup, setup);
        assert_eq!(request.source.unwrap().git.unwrap().reference.as_deref(), Some("main"));
        assert_eq!(request.lifecycle.unwrap().keep_alive_secs, Some(600.0));
    }

    #[test]
    fn a_directory_is_relative_to_the_file() {
        let text = "key = 'a'\nimage = 'base'\n[source]\ndirectory = 'code'\n";
        let Definition { request, directory } = Definition::parse(text, Path::new("/p")).unwrap();
        assert_eq!((request.source, directory), (None, Some(PathBuf::from("/p/code"))));
    }

    #[test]
    fn mistakes_are_refused_with_the_field() {
        for (text, part) in [
            ("key = 'a'\nimages = 'base'\n", "images"),
            ("key = \n", ""),
            ("[source]\ndirectory = 'a'\n[source.git]\nurl = 'https://example.com/a'\n", "exactly one"),
            ("[source]\ndirectory = 1\n", "source.directory"),
            ("key = 'a'\n[lifecycle]\non_drift = 'maybe'\n", "maybe"),
        ] {
            let problem = Definition::parse(text, Path::new(".")).unwrap_err();
            assert!(format!("{problem:?}").contains(part), "{text}: {problem:?}");
        }
    }
}
