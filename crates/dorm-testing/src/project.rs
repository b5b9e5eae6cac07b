//! A typical project: a repository with a program in Python and a page whose script needs a
//! package.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The Dockerfile that builds it with git, pip and npm, without network.
pub const DOCKERFILE: &str = "FROM tools
WORKDIR /srv
COPY source.bundle .
RUN git clone -q -b main source.bundle app
RUN pip install --no-index --no-build-isolation --break-system-packages ./app
RUN cd app/web && npm install --offline --no-audit --no-fund
COPY settings .
RUN greet && node app/web/index.js
CMD [\"greet\"]
";

const FILES: [(&str, &str); 6] = [
    (
        "pyproject.toml",
        "[build-system]\nrequires = []\nbuild-backend = \"setuptools.build_meta\"\n\n[project]\nname = \"greeter\"\n\
         version = \"1.0\"\nscripts = { greet = \"greeter:main\" }\n\n[tool.setuptools]\npackages = [\"greeter\"]\n",
    ),
    ("greeter/__init__.py", "def main():\n    print(open('/srv/settings').read().strip())\n"),
    ("web/package.json", r#"{"name":"web","version":"1.0.0","dependencies":{"left":"file:../left"}}"#),
    ("web/index.js", "console.log(require('left')('x'))\n"),
    ("left/package.json", r#"{"name":"left","version":"1.0.0","main":"index.js"}"#),
    ("left/index.js", "module.exports = text => 'left of ' + text\n"),
];

/// Writes its build context: the repository as a bundle, its Dockerfile, and a file `settings` with
/// this text.
///
/// # Errors
/// If files cannot be written, or git is missing.
pub fn write(context: &Path, settings: &str) -> Result<()> {
    let source = context.join("source");
    for (path, text) in FILES {
        let path = source.join(path);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        fs::write(path, text)?;
    }
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=test", "-c", "user.email=test@example.com"]).args(arguments);
        let output = command.current_dir(&source).output().context("run git")?;
        ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    git(&["init", "-q", "-b", "main"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "first"])?;
    git(&["bundle", "create", "-q", "../source.bundle", "--all"])?;
    fs::write(context.join(".dockerignore"), "source\n")?;
    fs::write(context.join("Dockerfile"), DOCKERFILE)?;
    Ok(fs::write(context.join("settings"), settings)?)
}
