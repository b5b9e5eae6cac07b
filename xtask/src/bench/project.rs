//! A project with a server in Python and one in JavaScript, whose packages come from the public
//! registries. They are in its repository: a sandbox of the bench reaches nothing but that.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::setup::Clients;

/// The name of its repository.
pub(super) const REPOSITORY: &str = "app.git";

pub(super) const SETUP: [&str; 2] = [
    "pip install --quiet --no-index --find-links vendor/wheels --break-system-packages .",
    "cd web && npm ci --offline --cache ../vendor/npm --no-audit --no-fund",
];
pub(super) const START: &str = "cd web && exec node index.js";
/// Needs the packages of both.
pub(super) const READY: &str =
    "python3 -c 'import greeter, urllib.request as web; web.urlopen(\"http://localhost:3000/\")'";

const FILES: [(&str, &str); 4] = [
    (
        "pyproject.toml",
        "[build-system]\nrequires = [\"setuptools\"]\nbuild-backend = \"setuptools.build_meta\"\n\n\
         [project]\nname = \"greeter\"\nversion = \"1.0\"\ndependencies = [\"flask\"]\n\n\
         [tool.setuptools]\npackages = [\"greeter\"]\n",
    ),
    ("greeter/__init__.py", "import flask\n\napp = flask.Flask(__name__)\n"),
    ("web/package.json", r#"{"name":"web","version":"1.0.0","private":true,"dependencies":{"express":"^5.0.0"}}"#),
    ("web/index.js", "require('express')().get('/', (_, answer) => answer.send('hello')).listen(3000)\n"),
];

/// Makes its bare repository in a directory.
pub(super) fn repository(directory: &Path, clients: &Clients) -> Result<()> {
    let source = directory.join("source");
    for (path, text) in FILES {
        let path = source.join(path);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        fs::write(path, text)?;
    }
    let mut wheels = Command::new(clients.python.join("bin/python"));
    run(wheels
        .args(["-m", "pip", "download", "-q", "-d", "vendor/wheels", "setuptools", "flask"])
        .current_dir(&source))?;
    let node = clients.node.display();
    let path = format!("{node}:{}", std::env::var("PATH").unwrap_or_default());
    let mut packages = Command::new(clients.node.join("npm"));
    packages.args(["install", "--cache", "../vendor/npm", "--no-audit", "--no-fund"]).env("PATH", path);
    // Without their addresses, npm looks for other descriptions of them than it has stored.
    packages.env("npm_config_omit_lockfile_registry_resolved", "false");
    run(packages.current_dir(source.join("web")))?;
    fs::remove_dir_all(source.join("web/node_modules"))?;
    let script = "git init -q -b main && git add -A && git -c user.name=bench -c user.email=bench@example.com \
                  commit -qm first && git clone -q --bare . \"../$1\"";
    run(Command::new("sh").args(["-c", script, "sh", REPOSITORY]).current_dir(&source))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
