//! Images of a real registry on loopback, pushed there by the tools that users have.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dorm_testing::until;
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place};

/// Programs of this host that are copied into the image.
const PROGRAMS: [&str; 5] = ["/bin/sh", "/bin/cat", "/usr/bin/id", "/usr/bin/env", "/bin/ls"];

/// A registry of the test, with its data in a directory that is removed with it.
pub(crate) struct Registry {
    child: Child,
    address: String,
    directory: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let store = directory.path().join("store");
        let config = format!(
            "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    \
             rootdirectory: {}\nhttp:\n  addr: {free}\n",
            store.display()
        );
        let path = directory.path().join("config.yml");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("docker-registry is not installed: run `cargo xtask setup`");
        let registry = Self { child, address: free.to_string(), directory };
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{}/v2/", registry.address);
        let answers = until(PATIENCE, "the registry answers", || async { Ok(client.get(&url).send().await.is_ok()) });
        answers.await.unwrap();
        registry
    }

    /// The reference of an image in it.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// The directory of its data.
    pub(crate) fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    /// Pushes the image of an OCI layout.
    fn push(&self, layout: &Path, tag: &str, name: &str) -> String {
        let reference = format!("{}/{name}", self.address);
        tool(
            "skopeo",
            &[
                "copy",
                "--insecure-policy",
                "--dest-tls-verify=false",
                &format!("oci:{}:{tag}", layout.display()),
                &format!("docker://{reference}"),
            ],
        );
        reference
    }
}

fn tool(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}: run `cargo xtask setup`"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Copies a program of this host with the libraries it needs below `root`.
fn copy_program(program: &str, root: &Path) {
    let put = |path: &str| {
        let to = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(std::fs::canonicalize(path).unwrap(), &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    put(program);
    let listed = Command::new("ldd").arg(program).output().unwrap();
    for word in String::from_utf8(listed.stdout).unwrap().split_whitespace().filter(|word| word.starts_with('/')) {
        put(word);
    }
}

/// An image of three layers, made by umoci: programs, then settings and files, then removals.
fn layout(directory: &Path) -> PathBuf {
    let layout = directory.join("layout");
    let image = format!("{}:1", layout.display());
    tool("umoci", &["init", "--layout", layout.to_str().unwrap()]);
    tool("umoci", &["new", "--image", &image]);
    let bundle = directory.join("bundle");
    let step = |change: &dyn Fn(&Path)| {
        let _ = std::fs::remove_dir_all(&bundle);
        tool("umoci", &["unpack", "--image", &image, bundle.to_str().unwrap()]);
        change(&bundle.join("rootfs"));
        tool("umoci", &["repack", "--image", &image, bundle.to_str().unwrap()]);
    };
    step(&|root| {
        PROGRAMS.iter().for_each(|program| copy_program(program, root));
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/home:/bin/sh\n").unwrap();
        std::fs::write(root.join("etc/group"), "root:x:0:\nann:x:1000:\n").unwrap();
    });
    step(&|root| {
        std::fs::create_dir_all(root.join("srv/app/old")).unwrap();
        std::fs::write(root.join("srv/app/old/file"), "old").unwrap();
        std::fs::write(root.join("srv/app/kept"), "kept").unwrap();
        std::fs::write(root.join("srv/app/removed"), "removed").unwrap();
    });
    step(&|root| {
        std::fs::remove_file(root.join("srv/app/removed")).unwrap();
        std::fs::remove_dir_all(root.join("srv/app/old")).unwrap();
        std::fs::create_dir(root.join("srv/app/old")).unwrap();
        std::fs::write(root.join("srv/app/old/new"), "new").unwrap();
    });
    tool(
        "umoci",
        &[
            "config",
            "--image",
            &image,
            "--config.env",
            "PATH=/usr/bin:/bin",
            "--config.env",
            "GREETING=hello",
            "--config.workingdir",
            "/srv/app",
            "--config.user",
            "ann",
            "--config.entrypoint",
            "/bin/sh",
            "--config.entrypoint",
            "-c",
            "--config.cmd",
            "echo started as $(id -un); exec cat",
        ],
    );
    layout
}

fn dorm(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    let (verb, rest) = arguments.split_at(2);
    command.args(verb).args(rest);
    command.env("DORM_SERVER", place.daemon().address()).env("DORM_KEY", place.daemon().key());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn done(ran: (i32, String, String)) -> String {
    assert_eq!(ran.0, 0, "{}", ran.2);
    ran.1
}

async fn said(place: &Place, id: &str, shell: &str, more: Value) -> String {
    let mut body = json!({"shell": shell});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = place.daemon().ask(Method::POST, &format!("/sandboxes/{id}/exec"), Some(body)).await.unwrap();
    format!("{}{}", answer["stdout"].as_str().unwrap(), answer["stderr"].as_str().unwrap()).trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_starts_from_an_image_of_a_registry_as_the_image_says() {
    let registry = Registry::start().await;
    let layout = layout(registry.directory.path());
    let reference = registry.push(&layout, "1", "team/app:1");
    let place = Place::without_images();

    let made = done(dorm(&place, &["sbx", "create", "web", "--image", &reference, "-o", "json"]));
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].as_str().unwrap();
    assert_eq!(said(&place, id, "echo $GREETING; id -un; pwd", json!({})).await, "hello\nann\n/srv/app");
    assert_eq!(said(&place, id, "ls -a old .", json!({})).await, ".:\n.\n..\nkept\nold\n\nold:\n.\n..\nnew");
    let other = json!({"user": "0", "cwd": "/etc", "env": {"GREETING": "mine"}});
    assert_eq!(said(&place, id, "echo $GREETING; id -u; pwd", other).await, "mine\n0\n/etc");

    // The registry is not contacted for a present image: it may be gone.
    let digest = made["image"].as_str().unwrap().to_owned();
    drop(registry);
    let again = done(dorm(&place, &["sbx", "create", "--image", &reference, "--start", "-o", "json"]));
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["image"], digest.as_str());
    let path = format!("/sandboxes/{}/processes", again["id"].as_str().unwrap());
    let processes = place.daemon().ask(Method::GET, &path, None).await.unwrap();
    let started = &processes["processes"][0];
    assert_eq!(
        (&started["label"], &started["user"], &started["cwd"]),
        (&json!("start"), &json!("ann"), &json!("/srv/app"))
    );
    let gone = dorm(&place, &["image", "pull", &reference]);
    assert!(gone.0 != 0 && gone.2.contains("cannot be reached"), "{gone:?}");

    // The settings are still those of the image after a suspend and in a fork.
    done(dorm(&place, &["sbx", "suspend", "web"]));
    done(dorm(&place, &["sbx", "resume", "web"]));
    assert_eq!(said(&place, id, "echo $GREETING; id -un; pwd", json!({})).await, "hello\nann\n/srv/app");
    let held = dorm(&place, &["image", "rm", &reference]);
    assert!(held.0 == 4 && held.2.contains("in use"), "{held:?}");
    place.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_of_a_killed_daemon_leaves_nothing_and_the_next_one_succeeds() {
    let registry = Registry::start().await;
    let layout = layout(registry.directory.path());
    // Large enough that the pull is still under way when the daemon is killed.
    let bundle = registry.directory.path().join("bundle");
    let mut file = std::fs::File::create(bundle.join("rootfs/large")).unwrap();
    let mut number = 1u64;
    for _ in 0..48 << 17 {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        file.write_all(&number.to_le_bytes()).unwrap();
    }
    drop(file);
    tool("umoci", &["repack", "--image", &format!("{}:1", layout.display()), bundle.to_str().unwrap()]);
    let reference = registry.push(&layout, "1", "team/app:1");
    let mut place = Place::without_images();
    let asked = json!({"reference": reference});
    let request = place.daemon().request(Method::POST, "/images/pull").header("accept", "text/event-stream");
    let mut answer = request.json(&asked).send().await.unwrap();
    // The first progress report: the pull has begun.
    assert!(answer.chunk().await.unwrap().is_some());
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let images = place.daemon().ask(Method::GET, "/images", None).await.unwrap();
    let names = |path: &str| -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(place.daemon().data().parent().unwrap().join(path)) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    if images["images"].as_array().unwrap().is_empty() {
        assert!(
            names("images").iter().all(|name| ["tags", ".lock", "layers"].contains(&name.as_str())),
            "{:?}",
            names("images")
        );
        assert!(names("images/layers").iter().all(|name| name == ".lock"), "{:?}", names("images/layers"));
    }
    place.daemon().ask(Method::POST, "/images/pull", Some(asked)).await.unwrap();
    assert!(names("data/pulls/blobs/sha256").is_empty(), "{:?}", names("data/pulls/blobs/sha256"));
    place.end(&[]).await;
}
