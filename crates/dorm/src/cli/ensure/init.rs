//! `dorm env init`: writes a first `environment.toml` from what a project directory has.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::cli::output;
use crate::cli::problem::{Done, Problem};
use crate::exit;

/// Options of `dorm env init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitOptions {
    /// Directory of the project
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// Write to standard output instead of environment.toml
    #[arg(long)]
    print: bool,
}

/// The definition that a project directory suggests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Suggestion {
    image: Option<String>,
    /// A line on where the image comes from.
    image_note: Option<String>,
    setup: Vec<String>,
    parallel: Vec<String>,
    env: BTreeMap<String, String>,
    user: Option<String>,
    /// The files that suggested something.
    from: Vec<String>,
}

/// The setup that a file suggests. For each language, the first file that exists counts.
const LANGUAGES: &[&[(&str, &str, &[&str])]] = &[
    &[
        ("pnpm-lock.yaml", "node:22", &["corepack enable", "pnpm install --frozen-lockfile"]),
        ("yarn.lock", "node:22", &["corepack enable", "yarn install --immutable || yarn install --frozen-lockfile"]),
        ("bun.lock", "oven/bun:1", &["bun install --frozen-lockfile"]),
        ("bun.lockb", "oven/bun:1", &["bun install --frozen-lockfile"]),
        ("package-lock.json", "node:22", &["npm ci"]),
        ("package.json", "node:22", &["npm install"]),
    ],
    &[
        ("uv.lock", "python:3.13", &["pip install uv", "uv sync --locked"]),
        ("poetry.lock", "python:3.13", &["pip install poetry", "poetry install"]),
        ("Pipfile.lock", "python:3.13", &["pip install pipenv", "pipenv sync"]),
        ("requirements.txt", "python:3.13", &["python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt"]),
        ("pyproject.toml", "python:3.13", &["python3 -m venv .venv", ".venv/bin/pip install -e ."]),
    ],
    &[("Cargo.lock", "rust:1", &["cargo fetch --locked"]), ("Cargo.toml", "rust:1", &["cargo fetch"])],
    &[("go.mod", "golang:1", &["go mod download"])],
    &[("Gemfile.lock", "ruby:3", &["bundle install"])],
    &[("composer.lock", "composer:2", &["composer install"])],
];

/// The parts of a `devcontainer.json` that are used.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DevContainer {
    image: Option<String>,
    remote_user: Option<String>,
    container_user: Option<String>,
    container_env: BTreeMap<String, String>,
    remote_env: BTreeMap<String, Option<String>>,
    on_create_command: Option<Lifecycle>,
    post_create_command: Option<Lifecycle>,
}

/// A command: a line for a shell, the words of one, or several by name, which run at once.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lifecycle {
    Line(String),
    Words(Vec<String>),
    Several(BTreeMap<String, Lifecycle>),
}

/// Writes the file.
pub(crate) fn init(options: InitOptions) -> Done {
    let directory = options.directory;
    let host = |error| Problem::host(format!("read the directory {}", directory.display()), &error);
    let root = fs::canonicalize(&directory).map_err(host)?;
    if !root.is_dir() {
        let message = format!("{} is not a directory", directory.display());
        return Err(Problem::usage(message, "give the directory of a project"));
    }
    let suggestion = Suggestion::of(&root)?;
    let text = suggestion.write(&root);
    if options.print {
        output::write(text.as_bytes())?;
        return Ok(exit::OK);
    }
    let path = directory.join("environment.toml");
    let mut file = fs::OpenOptions::new();
    let written = file.write(true).create_new(true).open(&path);
    let written = written.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    match written {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{} exists already", path.display());
            Err(Problem::usage(message, "edit it, or see what would be written with --print"))
        }
        Err(error) => Err(Problem::host(format!("write {}", path.display()), &error)),
        Ok(()) => {
            let from = match suggestion.from.as_slice() {
                [] => "nothing that it knows was found".to_owned(),
                from => format!("from {}", from.join(", ")),
            };
            output::talk(&format!("wrote {} ({from}): read it, then run `dorm ensure`", path.display()));
            Ok(exit::OK)
        }
    }
}

impl Suggestion {
    fn of(root: &Path) -> Result<Self, Problem> {
        let mut found = Self::default();
        for language in LANGUAGES {
            let Some((file, image, setup)) = language.iter().find(|(file, ..)| root.join(file).is_file()) else {
                continue;
            };
            found.from.push((*file).to_owned());
            found.image.get_or_insert_with(|| (*image).to_owned());
            found.setup.extend(setup.iter().map(|line| (*line).to_owned()));
        }
        if root.join("Dockerfile").is_file() {
            let tag = name_of(root);
            found.from.push("Dockerfile".to_owned());
            found.image_note = Some(format!("build it first: dorm image build --tag {tag} ."));
            found.image = Some(tag);
        }
        for file in [".devcontainer/devcontainer.json", ".devcontainer.json"] {
            match fs::read_to_string(root.join(file)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(Problem::host(format!("read {file}"), &error)),
                Ok(text) => {
                    found.from.push(file.to_owned());
                    found.dev_container(&text).map_err(|problem| problem.during(file))?;
                    break;
                }
            }
        }
        Ok(found)
    }

    fn dev_container(&mut self, text: &str) -> Result<(), Problem> {
        let wrong = |error: String| Problem::usage(error, "correct the file, or move it away");
        let parsed = jsonc_parser::parse_to_serde_value::<serde_json::Value>(text, &Default::default());
        let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
        let dev: DevContainer = serde_json::from_value(parsed).map_err(|error| wrong(error.to_string()))?;
        if let Some(image) = dev.image {
            (self.image, self.image_note) = (Some(image), None);
        }
        self.user = dev.remote_user.or(dev.container_user);
        self.env.extend(dev.container_env);
        self.env.extend(dev.remote_env.into_iter().filter_map(|(name, value)| Some((name, value?))));
        // The values of the variables of the tool are not known here.
        self.env.retain(|_, value| !value.contains("${"));
        let commands: Vec<Lifecycle> = [dev.on_create_command, dev.post_create_command].into_iter().flatten().collect();
        if !commands.is_empty() {
            self.setup.clear();
        }
        for command in commands {
            match command {
                Lifecycle::Several(several) => self.parallel.extend(several.into_values().map(Lifecycle::line)),
                one => self.setup.push(one.line()),
            }
        }
        Ok(())
    }

    fn write(&self, root: &Path) -> String {
        let mut text = String::from("# The environment of this project: `dorm ensure` gets its sandbox.\n");
        text.push_str(&format!("key = {}\n", quoted(&name_of(root))));
        if let Some(note) = &self.image_note {
            text.push_str(&format!("# {note}\n"));
        }
        text.push_str(&format!("image = {}\n", quoted(self.image.as_deref().unwrap_or("base"))));
        if let Some(user) = self.user.as_ref().filter(|user| *user != "root") {
            text.push_str(&format!("user = {}\n", quoted(user)));
        }
        let parallel = self.parallel.iter().map(|line| quoted(line)).collect::<Vec<_>>().join(", ");
        let mut steps: Vec<String> = self.setup.iter().map(|line| quoted(line)).collect();
        if !self.parallel.is_empty() {
            steps.push(format!("{{ parallel = [{parallel}] }}"));
        }
        text.push_str("# Each line runs with /bin/sh in /workspace, once for all sandboxes with this definition.\n");
        match steps.as_slice() {
            [] => text.push_str("setup = []\n"),
            steps => text.push_str(&format!("setup = [\n  {},\n]\n", steps.join(",\n  "))),
        }
        text.push_str("# start_command = \"npm run dev\"\n# ready_command = \"curl -fs http://localhost:3000/\"\n\n");
        match repository(root) {
            Some((url, branch)) => {
                text.push_str(&format!("[source.git]\nurl = {}\n", quoted(&url)));
                text.extend(branch.map(|branch| format!("ref = {}\n", quoted(&branch))));
                text.push_str("# token_secret = \"GIT_TOKEN\"  # a secret of the project: dorm secret set GIT_TOKEN\n");
            }
            None => text.push_str("[source]\ndirectory = \".\"\n"),
        }
        if !self.env.is_empty() {
            text.push_str("\n[env]\n");
            text.extend(self.env.iter().map(|(name, value)| format!("{} = {}\n", quoted(name), quoted(value))));
        }
        text.push_str("\n[lifecycle]\nsnapshot = \"after_setup\"\nkeep_alive_secs = 900\non_drift = \"rebuild\"\n");
        text
    }
}

impl Lifecycle {
    fn line(self) -> String {
        match self {
            Self::Line(line) => line,
            Self::Words(words) => words.iter().map(|word| shell_quoted(word)).collect::<Vec<_>>().join(" "),
            Self::Several(several) => several.into_values().map(Self::line).collect::<Vec<_>>().join(" && "),
        }
    }
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn shell_quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./=:@%+,".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the name of a directory in a form that tags and keys can have.
fn name_of(root: &Path) -> String {
    let name = root.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let legal = |char: char| if char.is_ascii_alphanumeric() { char } else { '-' };
    let name: String = name.chars().map(legal).collect();
    match name.trim_matches('-') {
        "" => "project".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the URL of the repository that a directory was cloned from, and its branch, if a sandbox
/// could clone them.
fn repository(root: &Path) -> Option<(String, Option<String>)> {
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
    };
    if git(&["rev-parse", "--show-toplevel"]).as_deref().map(Path::new) != Some(root) {
        return None;
    }
    let url = git(&["remote", "get-url", "origin"])?;
    let url = match url.strip_prefix("git@").and_then(|rest| rest.split_once(':')) {
        Some((host, path)) => format!("https://{host}/{path}"),
        None => url,
    };
    let has_credentials = url.split('/').nth(2).is_some_and(|host| host.contains('@'));
    if !url.starts_with("https://") || has_credentials {
        return None;
    }
    Some((url, git(&["branch", "--show-current"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ensure::file::Definition;

    fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn suggested(files: &[(&str, &str)]) -> (Suggestion, dorm_api_types::EnsureRequest) {
        let root = project(files);
        let suggestion = Suggestion::of(root.path()).unwrap();
        fs::write(root.path().join("environment.toml"), suggestion.write(root.path())).unwrap();
        let read = Definition::read(&root.path().join("environment.toml")).unwrap();
        assert_eq!(read.directory.unwrap(), root.path().join("."));
        (suggestion, read.request)
    }

    #[test]
    fn lock_files_suggest_the_image_and_the_setup() {
        let (_, request) = suggested(&[("package-lock.json", "{}"), ("package.json", "{}")]);
        assert_eq!(request.image.as_deref(), Some("node:22"));
        assert_eq!(request.setup, [dorm_api_types::SetupStep::Command("npm ci".to_owned())]);
        let (suggestion, _) = suggested(&[("package.json", "{}"), ("requirements.txt", "six\n")]);
        assert_eq!(suggestion.setup.len(), 3);
        assert_eq!(suggestion.from, ["package.json", "requirements.txt"]);
    }

    #[test]
    fn an_unknown_directory_suggests_a_plain_sandbox() {
        let (suggestion, request) = suggested(&[("notes.txt", "")]);
        assert!(suggestion.from.is_empty() && request.setup.is_empty());
        assert_eq!(request.image.as_deref(), Some("base"));
    }

    #[test]
    fn a_dockerfile_suggests_an_image_to_build() {
        let (suggestion, request) = suggested(&[("Dockerfile", "FROM base\n"), ("go.mod", "module x\n")]);
        assert_eq!(suggestion.image, request.image);
        assert!(suggestion.image_note.unwrap().starts_with("build it first"));
    }

    #[test]
    fn a_dev_container_is_read_with_its_comments() {
        let text = r#"{
            // The image.
            "image": "mcr.example.com/devcontainers/base:debian",
            "remoteUser": "vscode",
            "containerEnv": { "LANG": "C.UTF-8", "HOME_OF": "${localEnv:HOME}" },
            "postCreateCommand": { "a": "npm ci", "b": ["pip", "install", "it's"], },
        }"#;
        let (suggestion, request) = suggested(&[(".devcontainer/devcontainer.json", text), ("package.json", "{}")]);
        assert_eq!(request.image.as_deref(), Some("mcr.example.com/devcontainers/base:debian"));
        assert_eq!(request.user.as_deref(), Some("vscode"));
        assert_eq!(request.env, [("LANG".to_owned(), "C.UTF-8".to_owned())].into());
        assert_eq!(suggestion.parallel, ["npm ci", r"pip install 'it'\''s'"]);
        assert_eq!(request.setup.len(), 1, "{:?}", request.setup);
    }

    #[test]
    fn a_file_that_exists_is_kept() {
        let root = project(&[("environment.toml", "key = 'mine'\n")]);
        let refused = init(InitOptions { directory: root.path().to_owned(), print: false });
        assert!(refused.is_err());
        assert_eq!(fs::read_to_string(root.path().join("environment.toml")).unwrap(), "key = 'mine'\n");
    }
}
