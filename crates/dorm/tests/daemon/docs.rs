//! The commands of the documentation, run line by line by a shell, as a reader would run them.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use dorm_testing::docs;
use serde_json::Value;

use crate::place::Place;

/// A page and its reader.
struct Reading {
    page: &'static str,
    /// Lines to run before the page.
    before: &'static [&'static str],
    /// Parts of lines, and the text with which a reader on this host would replace them.
    instead: &'static [(&'static str, &'static str)],
    /// Beginnings of lines that are not run, each with the reason.
    not_run: &'static [(&'static str, &'static str)],
}

const INSTALLS: &str = "a setup task, run before the tests";
const STARTS: &str = "the daemon of the test runs already";
const TERMINAL: &str = "needs a terminal: tests/cli/shell.rs";
const REGISTRY: &str = "needs a registry: registry.rs";

struct Reader {
    place: Place,
    reading: Reading,
    used: Vec<&'static str>,
}

impl Reader {
    fn new(reading: Reading) -> Self {
        Self { place: Place::new(), reading, used: Vec::new() }
    }

    /// Runs all lines of the page.
    async fn read(mut self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        for line in self.reading.before {
            self.run("before", line);
        }
        let page = root.join(self.reading.page);
        for block in docs::blocks(&root, &page).unwrap().iter().filter(|block| block.language == "sh") {
            for (number, line) in block.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let place = format!("{}:{}", block.page, block.line + number);
                if let Some((beginning, _)) = self.reading.not_run.iter().find(|(known, _)| line.starts_with(known)) {
                    self.used.push(beginning);
                    continue;
                }
                let line = self.as_here(line);
                self.run(&place, &line);
            }
        }
        let expected = self.reading.not_run.iter().chain(self.reading.instead);
        for (known, _) in expected {
            assert!(self.used.contains(known), "{} no longer has '{known}'", self.reading.page);
        }
        self.place.end(&["a webhook was not taken"]).await;
    }

    /// The line as a reader on this host would write it.
    fn as_here(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for (part, replacement) in self.reading.instead {
            if line.contains(part) {
                self.used.push(part);
                line = line.replace(part, replacement);
            }
        }
        let command = line.split(" #").next().unwrap_or(&line).to_owned();
        let mut words: Vec<_> = command.split(' ').map(str::to_owned).collect();
        for word in &mut words {
            if *word == "SNAPSHOT" || (*word == "ID" && !command.contains("restart") && !command.contains("--sandbox"))
            {
                *word = self.newest_snapshot();
            } else if *word == "ID" {
                *word = self.source(if command.contains("restart") { "terminated" } else { "running" });
            }
        }
        words.join(" ")
    }

    fn newest_snapshot(&self) -> String {
        let all = self.json("dorm sbx checkpoint ls -o json");
        let files = all.iter().filter(|snapshot| snapshot["kind"] == "filesystem");
        let newest = files.max_by_key(|snapshot| snapshot["created_at"].to_string());
        newest.unwrap_or_else(|| panic!("no snapshot: {all:?}"))["id"].as_str().unwrap().to_owned()
    }

    /// The id of a sandbox in this state that has a snapshot.
    fn source(&self, state: &str) -> String {
        let all = self.json("dorm sbx ls --all -o json");
        let snapshots = self.json("dorm sbx checkpoint ls -o json");
        let has_snapshot = |sandbox: &&Value| snapshots.iter().any(|snapshot| snapshot["source"] == sandbox["id"]);
        let found = all.iter().filter(|sandbox| sandbox["state"] == state).find(has_snapshot);
        found.unwrap_or_else(|| panic!("none is {state}: {all:?}"))["id"].as_str().unwrap().to_owned()
    }

    fn json(&self, line: &str) -> Vec<Value> {
        serde_json::from_slice(&self.shell(line).stdout).unwrap()
    }

    fn run(&self, place: &str, line: &str) {
        let output = self.shell(line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{place}: {line}\n{}\n{stdout}\n{stderr}", output.status);
    }

    fn shell(&self, line: &str) -> Output {
        let script = format!("dorm() {{ \"$DORM\" \"$@\"; }}\n{line}\n");
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(self.place.directory());
        command.env("DORM", env!("CARGO_BIN_EXE_dorm")).env("DORM_DATA", self.place.daemon().data());
        command.env("HERE", self.place.directory()).stdin(Stdio::null());
        command.output().unwrap()
    }
}

#[tokio::test]
async fn the_readme_is_as_written() {
    let reading = Reading {
        page: "README.md",
        before: &[],
        instead: &[],
        not_run: &[
            ("cargo xtask", INSTALLS),
            ("target/release/dorm serve", STARTS),
            ("dorm() {", STARTS),
            ("dorm image import", INSTALLS),
            ("dorm sbx shell", TERMINAL),
        ],
    };
    Reader::new(reading).read().await;
}

#[tokio::test]
async fn the_quick_start_is_as_written() {
    let reading = Reading {
        page: "docs/quick-start.md",
        before: &[],
        instead: &[("apt-get -y upgrade", "apt-get --version"), ("events -f", "events"), ("/backup/", "$HERE/")],
        not_run: &[
            ("cargo xtask", INSTALLS),
            ("target/release/dorm serve", STARTS),
            ("dorm() {", STARTS),
            ("dorm doctor", "its exit code is that of this host: tests/cli/doctor.rs"),
            ("dorm image import", INSTALLS),
            ("dorm sbx shell", TERMINAL),
            ("dorm sbx checkpoint push", REGISTRY),
            ("dorm sbx checkpoint pull", REGISTRY),
            ("dorm sbx checkpoint import", "needs another host: transfer.rs"),
            ("dorm repair", "needs a stopped daemon: records.rs"),
        ],
    };
    Reader::new(reading).read().await;
}

#[tokio::test]
async fn the_page_on_scheduled_snapshots_is_as_written() {
    let reading = Reading {
        page: "docs/checkpoints.md",
        before: &[],
        instead: &[
            ("create web --checkpoint-every 1h", "create web2 --checkpoint-every 1h"),
            ("apt-get upgrade", "apt-get --version"),
        ],
        not_run: &[],
    };
    Reader::new(reading).read().await;
}

#[tokio::test]
async fn the_pages_on_access_and_trouble_are_as_written() {
    let reading = Reading {
        page: "docs/access.md",
        before: &["dorm sbx create web --image base"],
        instead: &[(
            "dorm key rm ID",
            "dorm key rm $(dorm key ls -o json | sed -n 's/.*\"id\": \"\\([^\"]*\\)\".*/\\1/p' | head -n1)",
        )],
        not_run: &[],
    };
    Reader::new(reading).read().await;
    let reading = Reading {
        page: "docs/troubleshooting.md",
        before: &["dorm sbx create web --image base"],
        instead: &[],
        not_run: &[("dorm doctor", "its exit code is that of this host: tests/cli/doctor.rs")],
    };
    Reader::new(reading).read().await;
}

#[tokio::test]
async fn the_page_on_volumes_is_as_written() {
    let reading = Reading {
        page: "docs/volumes.md",
        before: &[
            "mkdir model && echo weights > model/weights",
            "dorm sbx create worker-2 --image base",
            "dorm sbx create web --image base",
        ],
        instead: &[],
        not_run: &[],
    };
    Reader::new(reading).read().await;
}

#[tokio::test]
async fn the_page_on_images_is_as_written() {
    let reading = Reading {
        page: "docs/images.md",
        before: &["dorm image export base app.tar", "echo 'FROM base' > Dockerfile"],
        instead: &[("'git clone …'", "'mkdir -p /srv/src'"), ("--copy src:/srv/src ", "")],
        not_run: &[
            ("dorm sbx create --image docker.io", REGISTRY),
            ("dorm image pull", REGISTRY),
            ("dorm sbx create --image app --start", "needs an image with an entrypoint: registry.rs"),
        ],
    };
    Reader::new(reading).read().await;
}

#[tokio::test]
async fn the_backups_of_the_guarantees_are_as_written() {
    let reading = Reading {
        page: "docs/guarantees.md",
        before: &["dorm sbx create web --image base && dorm sbx suspend web"],
        instead: &[("/backup/", "$HERE/"), ("/var/lib/dormouse", "$HERE/restored")],
        not_run: &[],
    };
    Reader::new(reading).read().await;
}
