//! The files of the archive and of the Debian package, and their paths.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::tarball;
use crate::engine::{Engine, NAME};
use crate::setup;

/// A file of a package.
pub(super) struct Entry {
    /// Relative to the root of the package.
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) bytes: Vec<u8>,
}

impl Entry {
    pub(super) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, bytes: bytes.into() }
    }

    pub(super) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { mode: 0o755, ..Self::file(path, bytes) }
    }
}

/// The results of a build.
pub(super) struct Built {
    pub(super) dorm: Vec<u8>,
    pub(super) bash: Vec<u8>,
    pub(super) zsh: Vec<u8>,
    pub(super) fish: Vec<u8>,
    /// The names and texts of manual pages.
    pub(super) pages: Vec<(String, Vec<u8>)>,
    /// Our build of gVisor, if this host can build it.
    pub(super) engine: Option<BuiltEngine>,
}

/// Our build of gVisor.
pub(super) struct BuiltEngine {
    pub(super) program: Vec<u8>,
    /// The notice of what was changed, and the licences, which must accompany the program.
    pub(super) licences: Vec<u8>,
}

impl Built {
    /// Reads the program, and runs it for its completions and manual pages.
    pub(super) fn by(dorm: &Path, engine: Option<&Engine>) -> Result<Self> {
        let pages = tempfile::tempdir().context("create a directory for the manual pages")?;
        said(Command::new(dorm).arg("man-pages").arg(pages.path()))?;
        let completions = |shell| said(Command::new(dorm).args(["completions", shell]));
        Ok(Self {
            dorm: read(dorm)?,
            bash: completions("bash")?,
            zsh: completions("zsh")?,
            fish: completions("fish")?,
            pages: files(pages.path())?,
            engine: match engine {
                Some(Engine { program, licences }) => {
                    Some(BuiltEngine { program: read(program)?, licences: read(licences)? })
                }
                None => None,
            },
        })
    }
}

/// The entries of the archive, all below one directory with its name.
pub(super) fn archive(root: &Path, built: &Built, version: &str) -> Result<Vec<Entry>> {
    let mut entries = vec![
        Entry::program("dorm", built.dorm.as_slice()),
        Entry::file("completions/dorm.bash", built.bash.as_slice()),
        Entry::file("completions/_dorm", built.zsh.as_slice()),
        Entry::file("completions/dorm.fish", built.fish.as_slice()),
    ];
    if let Some(BuiltEngine { program, licences }) = &built.engine {
        entries.push(Entry::program(NAME, program.as_slice()));
        entries.push(Entry::file(format!("{NAME}.licences"), licences.as_slice()));
    }
    for name in ["LICENSE", "README.md", "CHANGELOG.md"] {
        entries.push(Entry::file(name, read(&root.join(name))?));
    }
    for name in ["dormouse.service", "dormouse-sandboxes.service"] {
        entries.push(Entry::file(name, read(&root.join("packaging").join(name))?));
    }
    entries.extend(built.pages.iter().map(|(name, page)| Entry::file(format!("man/man1/{name}"), page.as_slice())));
    entries.extend(images(root, "images")?);
    for entry in &mut entries {
        entry.path = format!("dormouse-{version}-x86_64-linux/{}", entry.path);
    }
    Ok(entries)
}

/// The files that the Debian package installs.
pub(super) fn installed(root: &Path, built: &Built) -> Result<Vec<Entry>> {
    const DOC: &str = "usr/share/doc/dormouse";
    let mut entries = vec![
        Entry::program("usr/bin/dorm", built.dorm.as_slice()),
        Entry::file("usr/share/bash-completion/completions/dorm", built.bash.as_slice()),
        Entry::file("usr/share/zsh/vendor-completions/_dorm", built.zsh.as_slice()),
        Entry::file("usr/share/fish/vendor_completions.d/dorm.fish", built.fish.as_slice()),
        Entry::file(format!("{DOC}/changelog.gz"), tarball::gzip(&read(&root.join("CHANGELOG.md"))?)?),
    ];
    if let Some(BuiltEngine { program, licences }) = &built.engine {
        entries.push(Entry::program(format!("usr/libexec/dormouse/{NAME}"), program.as_slice()));
        entries.push(Entry::file(format!("{DOC}/{NAME}.licences.gz"), tarball::gzip(licences)?));
    }
    for (from, to) in [
        ("packaging/dormouse.service", "lib/systemd/system/dormouse.service"),
        ("packaging/dormouse-sandboxes.service", "lib/systemd/system/dormouse-sandboxes.service"),
        ("packaging/debian/default", "etc/default/dormouse"),
        ("packaging/debian/copyright", "usr/share/doc/dormouse/copyright"),
    ] {
        entries.push(Entry::file(to, read(&root.join(from))?));
    }
    for (name, text) in files(&root.join("docs"))? {
        entries.push(Entry::file(format!("{DOC}/{name}"), text));
    }
    entries.extend(images(root, "usr/share/dormouse/images")?);
    for (name, page) in &built.pages {
        entries.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), tarball::gzip(page)?));
    }
    Ok(entries)
}

/// The files from which users build images, below the directory `place`.
fn images(root: &Path, place: &str) -> Result<Vec<Entry>> {
    let images = root.join("images");
    let mut entries = Vec::new();
    for path in setup::image_files(&images)? {
        let name = path.strip_prefix(&images).ok().and_then(Path::to_str).context("a file name is not UTF-8")?;
        let (name, content) = (format!("{place}/{name}"), read(&path)?);
        let mode = fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?.permissions().mode();
        entries.push(if mode & 0o111 == 0 { Entry::file(name, content) } else { Entry::program(name, content) });
    }
    Ok(entries)
}

/// The names and contents of the files in a directory, without those in its subdirectories.
fn files(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry.with_context(|| format!("list {}", directory.display()))?.path();
        if path.is_file() {
            let name = path.file_name().and_then(|name| name.to_str()).context("a file name is not UTF-8")?;
            files.push((name.to_owned(), read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

fn said(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(output.stdout)
}
