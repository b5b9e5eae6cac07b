//! The configuration of the daemon: flags, environment, file, defaults.

use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::world::{Ran, bare, end};

/// A configuration file with this text.
fn file(text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dorm.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

fn setting<'s>(shown: &'s [Value], name: &str) -> (&'s Value, &'s Value) {
    let setting = shown.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("{name}: {shown:?}"));
    (&setting["value"], &setting["origin"])
}

async fn refused(text: &str) -> (String, Ran) {
    let (_directory, path) = file(text);
    let ran = end(bare(&["config", "show", "--config", &path]), b"").await;
    assert_eq!((ran.code, ran.text().as_str()), (2, ""), "{ran:?}");
    assert!(ran.stderr.contains(&path), "{ran:?}");
    let served = end(bare(&["serve", "--config", &path]), b"").await;
    assert_eq!(served.code, 2, "the daemon refuses the same file: {served:?}");
    (ran.stderr.clone(), ran)
}

#[tokio::test]
async fn a_flag_overrides_a_variable_and_a_variable_overrides_the_file() {
    let (_directory, path) = file(
        "park-count = 3\nwarm-containers = 4\nimage-ratio-max = 5\nkeep-events = '7d'\n\
         domain = ['a.example', 'b.example']\nwithout-lost-secrets = true\nallow-unlimited-disks = false\n",
    );
    let mut command = bare(&["config", "show", "--config", &path, "--park-count", "30", "-o", "json"]);
    command.env("DORM_WARM_CONTAINERS", "40").env("DORM_PARK_COUNT", "31");
    let ran = end(command, b"").await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown: Vec<Value> = serde_json::from_slice(&ran.stdout).unwrap();
    for (name, value, origin) in [
        ("park-count", "30", "flag"),
        ("warm-containers", "40", "environment"),
        ("image-ratio-max", "5", "file"),
        ("keep-events", "7d", "file"),
        ("domain", "a.example, b.example", "file"),
        ("without-lost-secrets", "true", "file"),
        ("allow-unlimited-disks", "false", "file"),
        ("keep-terminated", "30d", "default"),
        ("listen", "127.0.0.1:7070", "default"),
    ] {
        assert_eq!(setting(&shown, name), (&value.into(), &origin.into()), "{name}");
    }
    assert_eq!(setting(&shown, "memory-budget-mib"), (&Value::Null, &"default".into()), "the daemon computes it");
}

#[tokio::test]
async fn a_table_shows_it_to_people() {
    let ran = end(bare(&["config", "show"]), b"").await;
    let rows = ran.rows();
    assert_eq!(rows[0], ["OPTION", "VALUE", "ORIGIN", "VARIABLE"]);
    assert!(rows.contains(&["park-count", "64", "default", "DORM_PARK_COUNT"].map(str::to_owned).to_vec()), "{rows:?}");
    let computed = ["memory-budget-mib", "not set", "default", "DORM_MEMORY_BUDGET_MIB"];
    assert!(rows.contains(&computed.map(str::to_owned).to_vec()), "{rows:?}");
}

#[tokio::test]
async fn a_file_with_a_mistake_is_refused_by_the_name_of_its_key() {
    for (text, said) in [
        ("park_count = 3\n", "'park_count', which is not an option of `dorm serve`; 'park-count' is one"),
        ("nonsense = 3\n", "'nonsense', which is not an option"),
        ("steps = '/tmp/x'\n", "'steps', which is not an option"),
        ("new-store = true\n", "'new-store', which is not an option"),
        ("config = 'other.toml'\n", "'config', which is not an option"),
        ("park-count = 'many'\n", "'park-count': invalid value 'many'"),
        ("park-count = [1, 2]\n", "'park-count' to [1, 2], which is not a string or a number"),
        ("without-lost-secrets = 'yes'\n", "'without-lost-secrets' to \"yes\", which is not true or false"),
        ("[serve]\npark-count = 3\n", "'serve', which is not an option"),
        ("park-count = \n", "is not TOML"),
    ] {
        let (stderr, ran) = refused(text).await;
        assert!(stderr.contains(said), "{text}: {ran:?}");
    }
    let missing = end(bare(&["config", "show", "--config", "/nonexistent/dorm.toml"]), b"").await;
    missing.failed(2, "cannot read the configuration file '/nonexistent/dorm.toml'");
}

#[tokio::test]
async fn a_mistake_is_refused_even_where_a_flag_overrides_it() {
    let (_directory, path) = file("park-count = 'many'\n");
    let ran = end(bare(&["config", "show", "--config", &path, "--park-count", "3"]), b"").await;
    ran.failed(2, "'park-count': invalid value");
}

#[tokio::test]
async fn the_daemon_does_what_the_file_says() {
    let (directory, path) = file("listen = '192.0.2.1:7070'\n");
    let data = directory.path().join("data");
    let mut command = bare(&["serve", "--data", data.to_str().unwrap()]);
    command.env("DORM_CONFIG", &path);
    let ran = end(command, b"").await;
    ran.failed(1, "--listen 192.0.2.1:7070: an address that is not loopback needs HTTPS");
    assert!(!Path::new(&data).exists());
}
