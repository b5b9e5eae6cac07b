//! Pulls from a simulated registry in this process.

mod registry;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dorm_ports::{Logins, Registry as _, RegistryError, RemoteSpec, Transport};
use dorm_storage::{Image, Stage, Storage, StorageError};
use tempfile::TempDir;

use self::registry::{Fault, Login, Server};
use crate::{Config, OciRegistry};

struct World {
    home: TempDir,
    storage: Storage,
    registry: OciRegistry,
    server: Server,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let storage = Storage::open(&home.path().join("data"), &home.path().join("images")).unwrap();
        let registry = open(home.path(), &storage);
        Self { home, storage, registry, server: Server::start().await }
    }

    async fn pull(&self, version: &str) -> Result<Image, RegistryError> {
        self.pull_for(version, None).await
    }

    async fn pull_for(&self, version: &str, architecture: Option<&str>) -> Result<Image, RegistryError> {
        let reference = format!("{}/app{version}", self.server.address);
        let asked = RemoteSpec {
            reference,
            architecture: architecture.map(str::to_owned),
            transport: Transport::Secure,
            logins: Logins::Daemon,
            login: None,
        };
        let name = self.registry.whole_name(&asked.reference).unwrap();
        let digest = self.registry.pull(&asked, &name, Arc::new(|_| {})).await?;
        Ok(self.storage.image(&digest).await.unwrap())
    }

    /// Returns the files that are kept for a pull.
    fn kept(&self) -> Vec<String> {
        names(&self.home.path().join("pulls/blobs/sha256"))
    }

    /// Returns whether the images contain no partial import.
    fn is_clean(&self) -> bool {
        let left = names(&self.home.path().join("images"));
        left.iter().all(|name| ["tags", ".lock", "layers"].contains(&name.as_str()))
            && names(&self.home.path().join("images/layers")).iter().all(|name| name == ".lock")
    }
}

fn open(home: &Path, storage: &Storage) -> OciRegistry {
    let config = Config {
        docker_config: Some(home.join("docker")),
        stall: Duration::from_millis(300),
        tries: 3,
        pause: Duration::from_millis(1),
        patience: Duration::from_secs(2),
        ..Config::new(home.join("pulls"))
    };
    crate::open(config, storage.clone()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(image: &Image, path: &str) -> String {
    std::fs::read_to_string(image.rootfs.join(path)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_with_its_settings_and_nothing_but_the_image_stays() {
    let world = World::new().await;
    world.server.image("1", &["one", "two"]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let reference = format!("{}/app:1", world.server.address);
    let asked = RemoteSpec {
        reference: reference.clone(),
        architecture: None,
        transport: Transport::Secure,
        logins: Logins::Daemon,
        login: None,
    };
    let report = move |progress| tell.lock().unwrap().push(progress);
    let digest = world.registry.pull(&asked, &reference, Arc::new(report)).await.unwrap();
    let image = world.storage.image(&digest).await.unwrap();
    assert_eq!((text(&image, "one"), text(&image, "two")), (registry::content("one"), registry::content("two")));
    assert_eq!(image.tags, std::slice::from_ref(&reference));
    assert_eq!(image.source.reference, Some(reference));
    assert!(image.source.manifest.is_some_and(|digest| digest.starts_with("sha256:")));
    assert_eq!(image.config.env, ["A=1"]);
    assert_eq!(world.kept(), [""; 0]);
    let told = told.lock().unwrap();
    let fetched: Vec<_> = told.iter().filter(|progress| progress.stage == Stage::Fetching).collect();
    let last = fetched.last().unwrap();
    assert_eq!(Some(last.bytes), last.bytes_total);
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_are_here_are_not_fetched_again() {
    let world = World::new().await;
    world.server.image("1", &["one", "two"]);
    world.server.image("2", &["one", "three"]);
    world.pull(":1").await.unwrap();
    let before = world.server.layers_sent();
    let image = world.pull(":2").await.unwrap();
    assert_eq!(text(&image, "three"), registry::content("three"));
    assert_eq!(world.server.layers_sent() - before, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pinned_by_its_digest() {
    let world = World::new().await;
    let digest = world.server.image("1", &["one"]);
    let image = world.pull(&format!("@{digest}")).await.unwrap();
    assert_eq!(image.tags, [format!("{}/app@{digest}", world.server.address)]);
    world.server.image("1", &["two"]);
    assert_eq!(text(&world.pull(&format!("@{digest}")).await.unwrap(), "one"), registry::content("one"));
    world.server.fault("/manifests/", Fault::Content(b"{}".to_vec()));
    let error = world.pull(&format!("@{digest}")).await.unwrap_err();
    assert!(
        matches!(&error, RegistryError::Lies { what, .. } if what.contains("a manifest with the digest")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_an_index_is_chosen_by_its_architecture() {
    let world = World::new().await;
    let (one, two) = (world.server.image("a", &["one"]), world.server.image("b", &["two"]));
    world.server.index("1", &[("amd64", &one), ("arm64", &two)]);
    assert_eq!(text(&world.pull_for(":1", Some("amd64")).await.unwrap(), "one"), registry::content("one"));
    assert_eq!(text(&world.pull_for(":1", Some("arm64")).await.unwrap(), "two"), registry::content("two"));
    let error = world.pull_for(":1", Some("s390x")).await.unwrap_err();
    assert!(matches!(&error, RegistryError::NotFound { what, .. } if what.contains("linux/arm64")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_cut_short_is_resumed_where_it_ended() {
    let world = World::new().await;
    world.server.image("1", &["one"]);
    world.server.fault("/blobs/", Fault::None);
    world.server.fault("/blobs/", Fault::Cut(10_000));
    world.server.fault("/blobs/", Fault::Cut(20_000));
    let image = world.pull(":1").await.unwrap();
    assert_eq!(text(&image, "one"), registry::content("one"));
    let ranges = world.server.ranges();
    assert!(ranges.len() == 2 && ranges.iter().all(|range| range.starts_with("bytes=")), "{ranges:?}");
    assert_ne!(ranges[0], ranges[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_fetched_is_used_by_the_next_pull_also_of_another_process() {
    let mut world = World::new().await;
    world.server.image("1", &["one"]);
    world.server.fault("/blobs/", Fault::None);
    for _ in 0..20 {
        world.server.fault("/blobs/", Fault::Cut(0));
    }
    world.server.fault_at(1, Fault::Cut(30_000));
    let error = world.pull(":1").await.unwrap_err();
    assert!(matches!(&error, RegistryError::Interrupted { got, .. } if *got > 0), "{error}");
    assert!(world.is_clean());
    assert!(world.kept().iter().any(|name| name.ends_with(".part")), "{:?}", world.kept());
    world.server.no_faults();
    world.registry = open(world.home.path(), &world.storage);
    let sent = world.server.sent();
    world.pull(":1").await.unwrap();
    let ranges = world.server.ranges();
    assert!(ranges.last().is_some_and(|range| range != "bytes=0-"), "{ranges:?} {sent}");
    assert_eq!(world.kept(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_document_of_a_dead_process_goes_with_the_next_one() {
    let world = World::new().await;
    let place = world.home.path().join("pulls/blobs/sha256");
    let (half, part) = (format!("{}-7.part", "0".repeat(64)), format!("{}.part", "0".repeat(64)));
    std::fs::write(place.join(&half), "{").unwrap();
    std::fs::write(place.join(&part), "a layer").unwrap();
    drop(open(world.home.path(), &world.storage));
    assert_eq!(world.kept(), [part]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_ranges_is_asked_from_the_beginning() {
    let world = World::new().await;
    world.server.image("1", &["one"]);
    world.server.fault("/blobs/", Fault::None);
    world.server.fault("/blobs/", Fault::Cut(10_000));
    world.server.fault("/blobs/", Fault::WithoutRanges);
    assert_eq!(text(&world.pull(":1").await.unwrap(), "one"), registry::content("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_beginning_is_noticed_and_fetched_again() {
    let world = World::new().await;
    world.server.image("1", &["one"]);
    let place = world.home.path().join("pulls/blobs/sha256");
    std::fs::write(place.join(format!("{}.part", world.server.last_layer())), vec![0; 5000]).unwrap();
    assert_eq!(text(&world.pull(":1").await.unwrap(), "one"), registry::content("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_lies_is_named_and_nothing_of_it_stays() {
    type Prepare = fn(&Server);
    let rows: [(&str, Prepare); 5] = [
        ("a blob with the digest sha256:", |server| {
            server.fault("/blobs/", Fault::None);
            server.fault("/blobs/", Fault::Spoilt);
        }),
        ("more than the", |server| {
            server.fault("/blobs/", Fault::None);
            server.fault("/blobs/", Fault::More);
        }),
        ("an invalid document", |server| server.fault("/manifests/", Fault::Content(b"not JSON".to_vec()))),
        ("a manifest of more than", |server| server.fault("/manifests/", Fault::Content(vec![b' '; 5 << 20]))),
        ("a manifest with the digest", |server| server.fault("/manifests/", Fault::WrongDigest)),
    ];
    for (expected, prepare) in rows {
        let world = World::new().await;
        world.server.image("1", &["one"]);
        prepare(&world.server);
        let error = world.pull(":1").await.expect_err(expected);
        assert!(matches!(&error, RegistryError::Lies { what, .. } if what.contains(expected)), "{expected}: {error}");
        assert!(world.is_clean(), "{expected}");
        world.server.no_faults();
        world.pull(":1").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_stops_before_it_takes_the_reserve_of_the_disk() {
    let mut world = World::new().await;
    world.server.image("1", &["one"]);
    world.storage = world.storage.clone().limited(u64::MAX, dorm_storage::ImportLimits::default());
    world.registry = open(world.home.path(), &world.storage);
    let error = world.pull(":1").await.unwrap_err();
    let RegistryError::Storage { source, .. } = &error else { panic!("{error}") };
    let source: &StorageError = source.downcast_ref().unwrap();
    assert!(source.is_no_room() && source.to_string().contains("nearly full"), "{source}");
    assert!(world.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_is_not_what_its_configuration_says_is_refused_and_not_kept() {
    let world = World::new().await;
    world.server.image_with_wrong_diff_id("1", "one");
    let error = world.pull(":1").await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("does not match its configuration"), "{error}: {source}");
    assert!(world.is_clean());
    assert_eq!(world.kept(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_limits_us_is_asked_again_when_it_says_so() {
    let world = World::new().await;
    world.server.image("1", &["one"]);
    world.server.fault("/manifests/", Fault::Status(429, Some(0)));
    world.server.fault("/blobs/", Fault::Status(429, None));
    world.server.fault("/blobs/", Fault::Status(503, Some(0)));
    world.pull(":1").await.unwrap();
    world.server.fault("/manifests/", Fault::Status(429, Some(3600)));
    let error = world.pull(":1").await.unwrap_err();
    assert!(error.to_string().contains("retry in 3600 s"), "{error}");
    for _ in 0..3 {
        world.server.fault("/manifests/", Fault::Status(500, None));
    }
    let error = world.pull(":1").await.unwrap_err();
    assert!(error.to_string().contains("answers 500"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_says_nothing_more_is_given_up_and_slow_ones_are_not() {
    let world = World::new().await;
    world.server.image("1", &["one"]);
    world.server.fault("/blobs/", Fault::None);
    world.server.fault("/blobs/", Fault::Slow);
    world.pull(":1").await.unwrap();
    world.server.image("2", &["two"]);
    world.server.fault("/blobs/", Fault::None);
    for _ in 0..4 {
        world.server.fault("/blobs/", Fault::Stall(5000));
    }
    for _ in 0..20 {
        world.server.fault("/blobs/", Fault::Stall(0));
    }
    let error = world.pull(":2").await.unwrap_err();
    assert!(matches!(&error, RegistryError::Interrupted { how: "timed out", .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_and_a_silent_registry_are_different_errors() {
    let world = World::new().await;
    let error = world.pull(":absent").await.unwrap_err();
    assert!(matches!(&error, RegistryError::NotFound { what, .. } if what.contains("MANIFEST_UNKNOWN")), "{error}");
    world.server.image("1", &["one"]);
    world.server.fault("/manifests/", Fault::Status(403, None));
    assert!(matches!(world.pull(":1").await.unwrap_err(), RegistryError::Unauthorized { .. }));
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let asked = RemoteSpec {
        reference: format!("{free}/app"),
        architecture: None,
        transport: Transport::Secure,
        logins: Logins::Daemon,
        login: None,
    };
    let error = world.registry.pull(&asked, "x", Arc::new(|_| {})).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_logins_only_permitted_addresses_are_asked() {
    let world = World::new().await;
    world.server.image("1", &["one"]);
    let reference = format!("{}/app:1", world.server.address);
    let asked =
        RemoteSpec { reference, architecture: None, transport: Transport::Secure, logins: Logins::None, login: None };
    let error = world.registry.pull(&asked, "x", Arc::new(|_| {})).await.unwrap_err();
    assert!(error.to_string().contains("no public address"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_of_dockers_configuration_are_used_and_their_want_is_told() {
    for login in [Login::Basic, Login::Token] {
        let world = World::new().await;
        world.server.image("1", &["one"]);
        world.server.login(login);
        let error = world.pull(":1").await.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, RegistryError::Unauthorized { .. }) && said.contains("no login was sent"), "{said}");
        let docker = world.home.path().join("docker");
        std::fs::create_dir(&docker).unwrap();
        let configure = |auth: &str| {
            let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, world.server.address);
            std::fs::write(docker.join("config.json"), text).unwrap();
        };
        // ann:wrong
        configure("YW5uOndyb25n");
        let error = world.pull(":1").await.unwrap_err();
        assert!(error.to_string().contains("login in Docker's configuration"), "{login:?}: {error}");
        // ann:hunter2
        configure("YW5uOmh1bnRlcjI=");
        world.pull(":1").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_of_images_with_common_layers_at_once_all_succeed() {
    let world = Arc::new(World::new().await);
    for number in 0..6 {
        world.server.image(&number.to_string(), &["one", "two", &format!("own {number}")]);
    }
    let pulls: Vec<_> = (0..6)
        .map(|number| {
            let world = world.clone();
            tokio::spawn(async move { world.pull(&format!(":{number}")).await.map(drop) })
        })
        .collect();
    for pull in pulls {
        pull.await.unwrap().unwrap();
    }
    assert_eq!(world.storage.images().await.unwrap().len(), 6);
    assert_eq!(world.kept(), [""; 0]);
}

/// Returns the redirect target that also serves the content of a blob.
fn blob_at(server: &Server, hex: &str) -> String {
    format!("http://{}/v2/app/blobs/sha256:{hex}", server.address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_sends_us_to_no_address_that_is_not_public_unless_it_is_allowed() {
    let world = World::new().await;
    let other = Server::start().await;
    other.image("1", &["one"]);
    let hex = other.last_layer();
    let port = other.address.rsplit_once(':').unwrap().1;
    let places = [
        blob_at(&other, &hex),
        format!("http://localhost:{port}/v2/app/blobs/sha256:{hex}"),
        format!("http://[::ffff:127.0.0.1]:{port}/v2/app/blobs/sha256:{hex}"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
    ];
    for (place, layer) in places.into_iter().zip(["one", "two", "three", "four"]) {
        world.server.image("1", &[layer]);
        // The configuration, and the layer.
        world.server.fault("/blobs/", Fault::None);
        world.server.fault("/blobs/", Fault::Elsewhere(place.clone()));
        let refused = world.pull(":1").await.unwrap_err().to_string();
        assert!(refused.contains("no public address") && refused.contains("--allow-network"), "{place}: {refused}");
        world.server.no_faults();
    }
    world.server.login(Login::Token);
    world.server.realm(format!("http://{}/token", other.address));
    let refused = world.pull(":1").await.unwrap_err().to_string();
    assert!(refused.contains("no public address"), "{refused}");
    assert_eq!(other.asked(), 0, "it was asked all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_within_a_registry_or_to_an_allowed_network_is_followed() {
    let mut world = World::new().await;
    world.server.image("1", &["one"]);
    let own = blob_at(&world.server, &world.server.last_layer());
    world.server.fault("/blobs/", Fault::None);
    world.server.fault("/blobs/", Fault::Elsewhere(own));
    world.pull(":1").await.unwrap();

    let other = Server::start().await;
    world.server.image("2", &["two"]);
    other.image("2", &["two"]);
    let loopback = dorm_ports::Destinations::public_and(["127.0.0.0/8".parse().unwrap()]);
    let config = Config { destinations: loopback, ..Config::new(world.home.path().join("pulls")) };
    world.registry = crate::open(config, world.storage.clone()).unwrap();
    world.server.fault("/blobs/", Fault::None);
    world.server.fault("/blobs/", Fault::Elsewhere(blob_at(&other, &other.last_layer())));
    world.pull(":2").await.unwrap();
    assert_eq!(other.asked(), 1);
}
