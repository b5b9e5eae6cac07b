//! Host ids of guests: another user of the host has none of them, and has no access to files of
//! images and volumes.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Method;
use serde_json::json;

use crate::place::Place;

const FIRST_USER: &str = include_str!("first_user.py");
const DEFAULT: u32 = 1_879_048_192;
/// The first subordinate range of a Debian host, and the range of earlier versions.
const LEGACY: u32 = 100_000;
/// The capability `cap_setuid+ep` with its value on the host.
const SETUID: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const CAPABILITY: &str = "security.capability";

fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}

/// A hostile image made of this host's own programs: one with capabilities, one with a set-id bit.
fn hostile(place: &Place) -> PathBuf {
    let top = place.directory().join("hostile");
    for name in ["bin", "dev", "etc", "proc", "root", "run", "sys", "tmp"] {
        fs::create_dir_all(top.join(name)).unwrap();
    }
    fs::write(top.join("tmp/.on-disk"), "").unwrap();
    fs::write(top.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    for program in ["sh", "cat", "sleep"] {
        let from = ["/usr/bin", "/bin"].iter().map(|place| Path::new(place).join(program)).find(|path| path.exists());
        let from = from.unwrap_or_else(|| panic!("this host has no {program}"));
        fs::copy(&from, top.join("bin").join(program)).unwrap();
        for library in libraries(&from) {
            let to = top.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&library, to).unwrap();
        }
    }
    for (name, mode) in [("capable", 0o755), ("set-id", 0o6755)] {
        fs::copy(top.join("bin/cat"), top.join("bin").join(name)).unwrap();
        fs::set_permissions(top.join("bin").join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(top.join("bin/capable"), CAPABILITY, &SETUID, flags).unwrap();
    top
}

/// A daemon with these host ids, and a sandbox of the hostile image with a volume.
struct Attacked {
    place: Place,
    sandbox: String,
    rootfs: PathBuf,
    /// A file of the volume, by the path at which the sandbox has it.
    on_volume: PathBuf,
}

impl Attacked {
    async fn begin(place: Place) -> Self {
        let daemon = place.daemon();
        let source = hostile(&place);
        let image = daemon.import_image(&source, "hostile").await.unwrap();
        let rootfs = daemon.images().join(image["digest"].as_str().unwrap()).join("rootfs");
        daemon.post("/volumes", json!({ "name": "data", "size_bytes": 64 << 20 })).await.unwrap();
        let volumes = json!([{ "volume": "data", "path": "/data" }]);
        let asked = json!({ "name": "web", "image": "hostile", "volumes": volumes });
        let sandbox = daemon.create(asked).await.unwrap();
        let (code, said) = daemon.exec(&sandbox, &["sh", "-c", "echo hello > /data/file"]).await.unwrap();
        assert_eq!(code, 0, "{said}");
        let slots = fs::read_dir(daemon.data().join("gvisor/slots")).unwrap().map(|slot| slot.unwrap().path());
        let on_volume = slots.map(|slots| slots.join("0/file")).find(|file| file.exists()).unwrap();
        Self { place, sandbox, rootfs, on_volume }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.rootfs.join("bin").join(name)
    }

    /// The operations in which the host's first user succeeds.
    fn attack(&self) -> Vec<String> {
        let image = self.program("sleep");
        let mut command = Command::new("python3");
        command.args(["-c", FIRST_USER]).arg(&image).arg(&self.on_volume).arg("--");
        command.args([self.program("capable"), self.program("set-id")]);
        let ran = command.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
        let short = |line: &str| line.split_once(": ").map(|(_, answer)| answer.to_owned());
        let answers: Vec<_> = said.lines().filter_map(short).collect();
        assert_eq!(answers.len(), 4, "{said}");
        answers
    }

    async fn end(self) {
        let daemon = self.place.daemon();
        daemon.act(&self.sandbox, "terminate").await.unwrap();
        daemon.ask(Method::DELETE, "/volumes/data", None).await.unwrap();
        self.place.end(&["have the host ids"]).await;
    }
}

#[tokio::test]
async fn the_hosts_first_user_can_neither_write_nor_execute_files_of_guests() {
    let attacked = Attacked::begin(Place::without_images()).await;
    assert_eq!(fs::metadata(attacked.program("sleep")).unwrap().uid(), DEFAULT);
    assert_eq!(fs::metadata(&attacked.on_volume).unwrap().uid(), DEFAULT);
    let answers = attacked.attack();
    assert!(answers[..2].iter().all(|answer| answer == "Permission denied"), "{answers:?}");
    assert!(answers[2..].iter().all(|answer| answer.starts_with("no")), "{answers:?}");
    attacked.end().await;
}

/// The same attack if guests have the ids of the host's first user: it succeeds, except that the
/// capabilities have no effect even for a user who can execute the file.
#[tokio::test]
async fn with_the_legacy_ids_the_first_user_owns_images_and_volumes_but_no_capability_counts() {
    let attacked = Attacked::begin(Place::with_guest_ids(LEGACY)).await;
    assert_eq!(fs::metadata(attacked.program("sleep")).unwrap().uid(), LEGACY);
    let answers = attacked.attack();
    assert_eq!(answers, ["yes", "yes", "0000000000000000", "0000000000000000"]);
    // As earlier versions imported it.
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(attacked.program("capable"), CAPABILITY, &SETUID, flags).unwrap();
    assert_eq!(attacked.attack()[2], "0000000000000080", "cap_setuid on the host");
    attacked.end().await;
}

/// Runs `dorm` on a host whose first user has these subordinate ids.
fn dorm_beside(subuid: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    const BESIDE: &str = "mount --bind \"$1\" /etc/subuid && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", BESIDE, "sh"]).arg(subuid).arg(env!("CARGO_BIN_EXE_dorm"));
    let ran = command.args(arguments).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (ran.status.code(), said.concat())
}

#[test]
fn a_range_that_somebody_else_has_is_refused_and_doctor_names_it() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let (subuid, data) = (place.path().join("subuid"), place.path().join("data"));
    let data = data.to_str().unwrap();
    for (ids, options) in [(DEFAULT, &[][..]), (LEGACY, &["--guest-ids", "100000"][..])] {
        fs::write(&subuid, format!("alice:{}:65536\n", ids + 65_535)).unwrap();
        let serve = [&["serve", "--listen", "127.0.0.1:0", "--data", data][..], options].concat();
        let (code, said) = dorm_beside(&subuid, &serve);
        assert_ne!(code, Some(0), "{said}");
        let doctor = [&["doctor", "--data", data][..], options].concat();
        let (code, found) = dorm_beside(&subuid, &doctor);
        assert_eq!(code, Some(1), "{found}");
        assert!(found.lines().any(|line| line.starts_with("fail  guest ids ")), "{found}");
        let free = if ids == DEFAULT { DEFAULT + 131_072 } else { DEFAULT };
        for said in [&said, &found] {
            for word in ["alice", "/etc/subuid", &format!("--guest-ids {free}")] {
                assert!(said.contains(word), "{word}: {said}");
            }
        }
    }
    assert!(!place.path().join("data/guest-ids").exists(), "nothing was begun");
    // A directory that has the range already still starts, with a warning: its sandboxes would be
    // cut off otherwise.
    fs::write(place.path().join("data/guest-ids"), format!("{LEGACY}\n")).unwrap();
    fs::write(&subuid, format!("alice:{LEGACY}:65536\n")).unwrap();
    let (_, found) = dorm_beside(&subuid, &["doctor", "--data", data]);
    assert!(found.lines().any(|line| line.starts_with("warn  guest ids ") && line.contains("alice")), "{found}");
}

/// Runs a command in a sandbox of the hostile image, which has few programs; it must succeed.
async fn works(place: &Place, id: &str, line: &str) -> String {
    let (code, said) = place.daemon().exec(id, &["sh", "-c", line]).await.unwrap();
    assert_eq!(code, 0, "{line}: {said}\n{}", place.daemon().log());
    said.trim().to_owned()
}

#[tokio::test]
async fn another_range_is_taken_when_nothing_runs_and_everything_is_kept() {
    const CHANGED: [&str; 3] = ["from now on", "while sandboxes of", "have the host ids"];
    let mut attacked = Attacked::begin(Place::with_guest_ids(LEGACY)).await;
    let id = attacked.sandbox.clone();
    works(&attacked.place, &id, "echo kept > /root/kept; echo memory > /dev/shm/memory").await;
    let taken = attacked.place.daemon().checkpoint(&id, "filesystem").await.unwrap();
    let daemon = attacked.place.daemon_mut();
    daemon.stop().unwrap();
    let refused = daemon.start_again_with(&["--guest-ids", "1879048192"]).unwrap_err().to_string();
    assert!(refused.contains("while sandboxes of") && refused.contains(&id), "{refused}");
    daemon.start_again_with(&[]).unwrap();
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    daemon.stop().unwrap();
    daemon.start_again_with(&["--guest-ids", "1879048192"]).unwrap();
    daemon.act(&id, "resume").await.unwrap();
    let (place, line) = (&attacked.place, "cat /dev/shm/memory /root/kept /data/file; echo more >> /data/file");
    assert_eq!(works(place, &id, line).await, "memory\nkept\nhello");
    assert_eq!(fs::metadata(attacked.program("sleep")).unwrap().uid(), DEFAULT);
    let mode = fs::metadata(attacked.program("set-id")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o6755);
    let daemon = place.daemon();
    let other = daemon.create(json!({ "name": "other", "snapshot": taken["id"] })).await.unwrap();
    assert_eq!(works(place, &other, "cat /root/kept; echo new > /etc/new; cat /etc/new").await, "kept\nnew");
    let answers = attacked.attack();
    assert!(answers.iter().all(|answer| answer.contains("Permission denied")), "{answers:?}");
    // The choice is on record: the option is no longer needed.
    let daemon = attacked.place.daemon_mut();
    daemon.stop().unwrap();
    daemon.start_again_with(&[]).unwrap();
    assert_eq!(works(&attacked.place, &id, "cat /data/file").await, "hello\nmore");
    let daemon = attacked.place.daemon();
    daemon.act(&other, "terminate").await.unwrap();
    daemon.act(&id, "terminate").await.unwrap();
    attacked.place.end(&CHANGED).await;
}
