//! The commands of the documentation, run line by line by a shell, as a reader would.

use std::path::Path;
use std::process::{Command, Stdio};

use dorm_testing::docs::{self, INSTALLS, REGISTRY, Reading, STARTS, TERMINAL};

use crate::place::{Place, images};

/// Runs all of a page against a daemon of its own.
async fn follow(reading: Reading) {
    follow_in(Place::new(), reading).await;
}

async fn follow_in(place: Place, reading: Reading) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    for docs::Line { place: of, text } in reading.lines(&root).unwrap() {
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", &format!("{}\n{text}\n", docs::FUNCTIONS)]);
        command.env("DORM", env!("CARGO_BIN_EXE_dorm")).env("DORM_DATA", place.daemon().data());
        command.env("ADDRESS", place.daemon().address());
        command.env("SET_UP", images().parent().unwrap());
        command.env("HERE", place.directory()).current_dir(place.directory()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
        assert!(output.status.success(), "{of}: {text}\n{}\n{stdout}\n{stderr}", output.status);
    }
    place.end(&["a webhook was not taken"]).await;
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
    follow(reading).await;
}

#[tokio::test]
async fn the_quick_start_is_as_written() {
    follow(docs::QUICK_START).await;
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
    follow(reading).await;
}

#[tokio::test]
async fn the_page_on_access_is_as_written() {
    let before = &["dorm sbx create web --image base"];
    let reading = Reading {
        page: "docs/access.md",
        before,
        instead: &[("https://localhost:7070", "https://localhost:${ADDRESS##*:}")],
        not_run: &[("dorm serve --listen", STARTS), ("dorm serve --cors-origin", STARTS)],
    };
    follow(reading).await;
}

#[tokio::test]
async fn the_page_on_the_http_api_is_as_written() {
    let reading = Reading {
        page: "docs/api.md",
        before: &[],
        instead: &[("/var/lib/dormouse", "$DORM_DATA"), ("http://127.0.0.1:7070", "$ADDRESS")],
        not_run: &[],
    };
    follow(reading).await;
}

#[tokio::test]
async fn the_page_on_troubleshooting_is_as_written() {
    let reading = Reading {
        page: "docs/troubleshooting.md",
        before: &["dorm sbx create web --image base"],
        instead: &[],
        not_run: &[("dorm doctor", "its exit code is that of this host: tests/cli/doctor.rs")],
    };
    follow(reading).await;
}

#[tokio::test]
async fn the_page_on_environments_is_as_written() {
    let place = Place::new();
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/environments.md")).unwrap();
    let definition = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(place.directory().join("environment.toml"), definition).unwrap();
    follow_in(place, Reading { page: "docs/environments.md", before: &[], instead: &[], not_run: &[] }).await;
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
    follow(reading).await;
}

#[tokio::test]
async fn the_page_on_images_is_as_written() {
    let reading = Reading {
        page: "docs/images.md",
        // Images of its own: those that tests share do not change.
        before: &[
            "dorm image import \"$SET_UP\"/base-*.tar --tag base",
            "dorm image export base app.tar",
            "echo 'FROM base' > Dockerfile",
        ],
        instead: &[
            ("'git clone …'", "'mkdir -p /srv/src'"),
            ("--copy src:/srv/src ", ""),
            ("'./serve' --ready-cmd 'curl -sf localhost:8000'", "'sleep 9999' --ready-cmd 'true'"),
        ],
        not_run: &[
            ("dorm sbx create --image docker.io", REGISTRY),
            ("dorm image pull", REGISTRY),
            ("dorm sbx create --image app --start", "needs an image with an entrypoint: registry.rs"),
        ],
    };
    follow_in(Place::without_images(), reading).await;
}

#[tokio::test]
async fn the_backups_of_the_guarantees_are_as_written() {
    let reading = Reading {
        page: "docs/guarantees.md",
        before: &["dorm sbx create web --image base && dorm sbx suspend web"],
        instead: &[("/backup/", "$HERE/"), ("/var/lib/dormouse", "$HERE/restored")],
        not_run: &[],
    };
    follow(reading).await;
}
