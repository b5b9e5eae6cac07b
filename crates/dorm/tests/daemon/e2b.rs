//! The unmodified clients of E2B, each with its cases, against a daemon of its own.
//!
//! A suite records which methods and options its cases use; a second program compares that with
//! what the client offers and with what `docs/e2b.md` lists as refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use dorm_testing::{Daemon, Internet};
use reqwest::Method;
use serde_json::json;

use crate::place::Place;

/// The images that the cases start sandboxes from.
const IMAGES: [&str; 2] = ["base", INTERPRETER];

/// The image of the code interpreter, and the template that is made of it.
const INTERPRETER: &str = "code-interpreter-v1";
/// Succeeds when its program can run code.
const READY: &str = "curl -fs http://localhost:49999/health";

/// Messages of the daemon that the cases provoke.
const EXPECTED: [&str; 0] = [];

/// A directory of the set-up.
fn set_up(variable: &str, default: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse").join(default);
    std::env::var_os(variable).map_or(target, PathBuf::from).canonicalize().unwrap()
}

/// The Python with the newest clients.
fn newest_python() -> PathBuf {
    set_up("DORM_TEST_E2B_PYTHON", "e2b-python").join("bin/python")
}

/// A file of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}

/// A daemon with a key for clients of E2B.
struct Server {
    place: Place,
    internet: Internet,
    key: String,
    url: String,
    /// The name of the suite.
    suite: &'static str,
    /// The ids that the daemon had before the cases.
    before: Vec<String>,
}

impl Server {
    /// A server for a suite that runs code.
    async fn with_interpreter(suite: &'static str) -> Self {
        let mut server = Self::new(suite).await;
        let daemon = server.place.daemon();
        let mut template = Command::new(daemon.program());
        template.args(["image", "build", "--from", INTERPRETER, "--template", INTERPRETER, "--ready-cmd", READY]);
        template.args(["--memory", "2G", "--disk", "8G", "--data"]).arg(daemon.data());
        let built = tokio::task::spawn_blocking(move || template.output().unwrap()).await.unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        server.before = left(daemon).await;
        server
    }

    async fn new(suite: &'static str) -> Self {
        let place = Place::with_images(&IMAGES);
        let daemon = place.daemon();
        let created = daemon.post("/keys", json!({ "name": suite, "form": "e2b" })).await.unwrap();
        let key = created["key"].as_str().unwrap().to_owned();
        let url = door(daemon).await;
        let authority = daemon.get("/authority").await.unwrap();
        let certificate = authority["certificate"].as_str().unwrap();
        std::fs::write(place.directory().join("authority.pem"), certificate).unwrap();
        let before = left(place.daemon()).await;
        Self { place, internet: Internet::new().unwrap(), key, url, suite, before }
    }

    fn records(&self) -> PathBuf {
        self.place.directory().join("records")
    }

    /// The file with what the suite reports of itself.
    fn summary(&self) -> PathBuf {
        let directory = std::env::var_os("DORM_TEST_SUMMARIES");
        directory.map_or_else(|| self.place.directory().to_owned(), PathBuf::from).join(format!("e2b-{}", self.suite))
    }

    /// Runs a program in a directory of the repository, with the variables of clients.
    async fn run(&self, directory: &str, program: &Path, arguments: &[&str]) {
        let directory = repository(directory);
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&directory)
            .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
            .env("E2B_API_KEY", &self.key)
            .env("E2B_API_URL", &self.url)
            .env("E2B_SANDBOX_URL", &self.url)
            .env("E2B_VOLUME_API_URL", &self.url)
            .env("E2B_CASES_CA", self.place.directory().join("authority.pem"))
            .env("E2B_CASES_INTERNET", &self.internet.address)
            .env("E2B_CASES_NODE", set_up("DORM_TEST_NODE", "node/bin"))
            .env("E2B_RECORDS", self.records())
            .env("E2B_SUITE", self.suite)
            .env("E2B_SUMMARY", self.summary());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (said(&output.stdout), said(&output.stderr));
        assert!(output.status.success(), "{} {arguments:?}\n{out}\n{err}", directory.display());
    }

    /// Checks that the cases have left nothing, and ends the daemon.
    async fn end(self) {
        println!("{}", std::fs::read_to_string(self.summary()).unwrap());
        assert_eq!(left(self.place.daemon()).await, self.before, "the suite {} leaves nothing", self.suite);
        self.place.end(&EXPECTED).await;
    }
}

/// The address at which a daemon serves clients of E2B.
async fn door(daemon: &Daemon) -> String {
    let info = daemon.get("/info").await.unwrap();
    format!("http://{}", info["doors"]["e2b"].as_str().unwrap())
}

/// The ids of the sandboxes, snapshots and volumes of a daemon. The steps of builds are kept for
/// later builds.
async fn left(daemon: &Daemon) -> Vec<String> {
    let mut found = Vec::new();
    for kind in ["sandboxes", "snapshots", "volumes"] {
        let list = daemon.get(&format!("/{kind}?limit=1000")).await.unwrap();
        let items = list[kind].as_array().unwrap();
        let live = items.iter().filter(|item| item["state"] != "terminated" && item["labels"]["dorm.build"].is_null());
        found.extend(live.map(|item| format!("{kind}: {}", item["id"])));
    }
    found
}

/// Runs the cases of the clients for Python of an environment.
async fn python(suite: &'static str, variable: &str, environment: &str) {
    let server = Server::with_interpreter(suite).await;
    let python = set_up(variable, environment).join("bin/python");
    server.run("integrations/e2b/python", &python, &["-m", "pytest", "-q", "-n", "2"]).await;
    let (records, page) = (server.records(), repository("docs/e2b.md"));
    let compare = ["check_surface.py", records.to_str().unwrap(), page.to_str().unwrap()];
    server.run("integrations/e2b/python", &python, &compare).await;
    server.end().await;
}

#[tokio::test]
async fn the_clients_for_python_pass_their_cases() {
    python("python", "DORM_TEST_E2B_PYTHON", "e2b-python").await;
}

#[tokio::test]
async fn the_older_clients_for_python_pass_their_cases() {
    python("python-2.45", "DORM_TEST_E2B_PYTHON_2_45", "e2b-python-2.45").await;
}

#[tokio::test]
async fn a_sandbox_that_is_paused_first_and_woken_last_outlives_three_daemons() {
    let mut server = Server::new("restarts").await;
    let python = newest_python();
    let state = server.place.directory().join("state").to_str().unwrap().to_owned();
    server.run("integrations/e2b/python", &python, &["restarts.py", "first", &state]).await;
    for is_killed in [true, false, true] {
        let daemon = server.place.daemon_mut();
        if is_killed {
            daemon.kill().unwrap();
        } else {
            daemon.stop().unwrap();
        }
        daemon.start_again().unwrap();
        server.url = door(daemon).await;
        server.run("integrations/e2b/python", &python, &["restarts.py", "between"]).await;
    }
    server.run("integrations/e2b/python", &python, &["restarts.py", "last", &state]).await;
    server.end().await;
}

#[tokio::test]
async fn a_thousand_commands_are_open_at_once_in_four_sandboxes() {
    let server = Server::new("crowd").await;
    let python = newest_python();
    server.run("integrations/e2b/python", &python, &["crowd.py"]).await;
    server.end().await;
}

/// Runs the cases of the client for JavaScript under one of its names in the package.
async fn javascript(suite: &'static str, script: &str) {
    let server = Server::with_interpreter(suite).await;
    let npm = set_up("DORM_TEST_NODE", "node/bin").join("npm");
    server.run("integrations/e2b/javascript", &npm, &["run", "--silent", script]).await;
    server.end().await;
}

#[tokio::test]
async fn the_client_for_javascript_passes_its_cases() {
    javascript("javascript", "cases").await;
}

#[tokio::test]
async fn the_older_client_for_javascript_passes_its_cases() {
    javascript("javascript-2.45", "cases:2.45").await;
}

#[tokio::test]
async fn the_command_line_passes_its_cases() {
    let server = Server::new("cli").await;
    let python = newest_python();
    server.run("integrations/e2b/cli", &python, &["-m", "pytest", "-q", "-n", "2"]).await;
    let (records, page) = (server.records(), repository("docs/e2b.md"));
    let compare = ["check_surface.py", records.to_str().unwrap(), page.to_str().unwrap()];
    server.run("integrations/e2b/cli", &python, &compare).await;
    server.end().await;
}

/// Runs the own tests of the code interpreter in a sandbox of its image, which has all that they
/// need but the test runner.
#[tokio::test]
async fn the_code_interpreter_passes_its_own_tests() {
    const RUN: &str = "tar -xf tests.tar && mkdir files && ln -s /opt/code-interpreter/* files && \
        ln -s /etc/dormouse/on-resume.d/code-interpreter files/variables-hook && \
        exec python3 -m pytest -q -p no:cacheprovider tests";
    let place = Place::with_images(&[INTERPRETER]);
    let daemon = place.daemon();
    let resources = json!({ "memory_bytes": 2_u64 << 30, "disk_bytes": 8_u64 << 30 });
    let id = daemon.create(json!({ "image": INTERPRETER, "resources": resources })).await.unwrap();
    let python = newest_python();
    let where_pytest_is = "import os, pytest; print(os.path.dirname(os.path.dirname(pytest.__file__)), end='')";
    let output = Command::new(python).args(["-c", where_pytest_is]).output().unwrap();
    let packages = String::from_utf8(output.stdout).unwrap();
    let archive = place.directory().join("tests.tar");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(&archive).args(["-C", &packages, "pytest", "_pytest", "py.py", "pluggy", "iniconfig"]);
    tar.arg("-C").arg(repository("images/code-interpreter")).arg("tests");
    assert!(tar.status().unwrap().success());
    let path = format!("/sandboxes/{id}/files?path=/home/user/tests.tar");
    let upload = daemon.request(Method::PUT, &path).body(std::fs::read(&archive).unwrap());
    upload.send().await.unwrap().error_for_status().unwrap();
    let (code, said) = daemon.exec(&id, &["sh", "-c", RUN]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    println!("{said}");
    daemon.end_sandboxes().await.unwrap();
    place.end(&EXPECTED).await;
}

/// Runs the programs of the pages of E2B's documentation in both languages. With `DORM_UPDATE`,
/// writes the table of their results.
#[tokio::test]
async fn the_examples_of_the_documentation_do_what_it_promises() {
    let server = Server::with_interpreter("pages").await;
    let python = newest_python();
    server.run("integrations/e2b/pages", &python, &["run.py", "../../../docs/e2b.md"]).await;
    server.end().await;
}

#[tokio::test]
async fn the_examples_print_what_the_documentation_shows() {
    let server = Server::with_interpreter("examples").await;
    let python = newest_python();
    server.run("examples/e2b", &python, &["check.py"]).await;
    server.end().await;
}
