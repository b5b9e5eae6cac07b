use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;

use super::*;

fn id(number: u8) -> VolumeId {
    VolumeId::from_random([number; 20])
}

async fn put(volumes: &Volumes, path: &str, text: &str) -> Result<(), VolumeError> {
    let mut new = volumes.write(&id(1), path).await?;
    new.take()?.write_all(text.as_bytes()).unwrap();
    new.finish().map(drop)
}

async fn get(volumes: &Volumes, path: &str) -> Result<String, VolumeError> {
    let (mut file, _) = volumes.read(&id(1), path).await?;
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    Ok(text)
}

/// Returns volumes with one of 32 MiB, where the host can limit sizes.
async fn limited() -> Option<(tempfile::TempDir, Volumes)> {
    if let Err(error) = dorm_disk::Disk::probe() {
        dorm_skip::skip(chain(&error));
        return None;
    }
    let place = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(place.path(), Limiting::WherePossible);
    volumes.make(&id(1), 32 << 20, TopMode::Root).await.unwrap();
    Some((place, volumes))
}

#[tokio::test]
async fn files_go_in_and_out_by_paths_from_the_top_of_the_volume() {
    let place = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(place.path().join("volumes"), Limiting::Never);
    volumes.make(&id(1), 64 << 20, TopMode::Root).await.unwrap();
    put(&volumes, "/a/b/c.txt", "hello").await.unwrap();
    put(&volumes, "a/b/c.txt", "again").await.unwrap();
    assert_eq!(get(&volumes, "/a/b/c.txt").await.unwrap(), "again");
    let listed = volumes.list(&id(1), "/a").await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].kind), ("b", FileKind::Directory));
    let dropped = volumes.write(&id(1), "half").await.unwrap();
    drop(dropped);
    let names: Vec<_> = volumes.list(&id(1), "").await.unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["a"], "a file that was not finished is not there");
}

#[tokio::test]
async fn no_path_leads_out_of_a_volume() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("secret"), "secret").unwrap();
    let volumes = Volumes::new(place.path().join("volumes"), Limiting::Never);
    volumes.make(&id(1), 64 << 20, TopMode::Root).await.unwrap();
    let top = volumes.mount(&id(1), None).await.unwrap();
    symlink(place.path().join("secret"), top.join("absolute")).unwrap();
    symlink("../../../secret", top.join("relative")).unwrap();
    symlink("../../..", top.join("up")).unwrap();
    symlink("inside", top.join("within")).unwrap();
    fs::write(top.join("inside"), "inside").unwrap();
    for path in ["absolute", "relative", "up/secret", "../../../secret", "/../../secret", "up"] {
        assert!(get(&volumes, path).await.is_err(), "{path}");
    }
    for path in ["up/new", "../new", "..", ""] {
        assert!(put(&volumes, path, "x").await.is_err(), "{path}");
    }
    assert_eq!(get(&volumes, "within").await.unwrap(), "inside", "a link that stays inside is followed");
    put(&volumes, "absolute", "mine").await.unwrap();
    assert_eq!(fs::read_to_string(place.path().join("secret")).unwrap(), "secret", "a link is replaced, not followed");
    assert!(volumes.mount(&id(1), Some(&"up/x".parse().unwrap())).await.is_err());
}

#[tokio::test]
async fn a_volume_whose_files_are_gone_says_so() {
    let place = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(place.path(), Limiting::Never);
    volumes.make(&id(1), 64 << 20, TopMode::Root).await.unwrap();
    assert_eq!(volumes.health(&id(1)).await, Health::Idle);
    assert!(matches!(volumes.make(&id(1), 64 << 20, TopMode::Root).await, Err(VolumeError::Exists(_))));
    fs::remove_dir_all(place.path().join(id(1).as_str())).unwrap();
    assert!(matches!(volumes.health(&id(1)).await, Health::Broken(why) if why.contains("gone")));
    assert!(matches!(volumes.mount(&id(1), None).await, Err(VolumeError::Gone { .. })));
    volumes.remove(&id(1)).await.unwrap();
}

#[tokio::test]
async fn what_a_crash_left_of_a_making_is_removed_by_the_next_or_by_a_removal() {
    let place = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(place.path(), Limiting::Never);
    let draft = place.path().join(format!(".new-{}", id(1)));
    fs::create_dir_all(draft.join("plain/half")).unwrap();
    volumes.make(&id(1), 64 << 20, TopMode::Root).await.unwrap();
    assert!(volumes.list(&id(1), "").await.unwrap().is_empty());
    fs::create_dir_all(draft.join("plain")).unwrap();
    volumes.remove(&id(1)).await.unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_limited_volume_is_full_when_it_is_full_and_keeps_its_content_unmounted() {
    let Some((place, volumes)) = limited().await else { return };
    assert_eq!(volumes.health(&id(1)).await, Health::Idle);
    put(&volumes, "kept", "kept").await.unwrap();
    let mut new = volumes.write(&id(1), "big").await.unwrap();
    let full = new.take().unwrap().write_all(&vec![1; 64 << 20]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    drop(new);
    // Another thread removes the partial file.
    loop {
        let Health::Mounted { size_bytes, used_bytes } = volumes.health(&id(1)).await else { panic!("not mounted") };
        assert!(size_bytes <= 32 << 20, "{size_bytes}");
        if used_bytes < 16 << 20 {
            break;
        }
    }
    volumes.settle(BTreeSet::from([id(1)])).await;
    assert!(matches!(volumes.health(&id(1)).await, Health::Mounted { .. }));
    volumes.settle(BTreeSet::new()).await;
    assert_eq!(volumes.health(&id(1)).await, Health::Idle);
    assert_eq!(get(&volumes, "kept").await.unwrap(), "kept");
    assert_eq!(volumes.list(&id(1), "").await.unwrap().len(), 1, "nothing but what was put there");
    volumes.remove(&id(1)).await.unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_volume_that_has_lost_writes_is_broken_until_it_is_removed() {
    let Some((place, volumes)) = limited().await else { return };
    put(&volumes, "kept", "kept").await.unwrap();
    volumes.sync(&id(1)).await.unwrap();
    // As a sync leaves it, or an unmounting: see the tests of `dorm-disk`.
    fs::write(place.path().join(id(1).as_str()).join("lost-writes"), "the host's disk was full").unwrap();
    for _ in 0..2 {
        let error = volumes.sync(&id(1)).await.unwrap_err();
        assert!(matches!(&error, VolumeError::LostWrites { cause, .. } if cause == "the host's disk was full"));
        assert!(matches!(volumes.health(&id(1)).await, Health::Broken(why) if why.contains("has lost writes")));
        assert_eq!(get(&volumes, "kept").await.unwrap(), "kept", "its files can be copied");
        assert_eq!(volumes.settle(BTreeSet::new()).await, 0);
    }
    volumes.remove(&id(1)).await.unwrap();
    volumes.make(&id(1), 32 << 20, TopMode::Root).await.unwrap();
    assert_eq!(volumes.health(&id(1)).await, Health::Idle);
    volumes.remove(&id(1)).await.unwrap();
}

/// Records what is reported as durable.
#[derive(Debug, Default)]
struct Durable(std::sync::Mutex<BTreeSet<PathBuf>>);

impl dorm_steps::Steps for Durable {
    fn reach(&self, _: &'static str) -> Result<(), dorm_steps::Stopped> {
        Ok(())
    }

    fn durable(&self, path: &Path) {
        self.0.lock().unwrap().insert(path.to_owned());
    }
}

#[tokio::test]
async fn the_directories_above_a_new_file_are_durable_with_it() {
    let place = tempfile::tempdir().unwrap();
    let durable = Arc::new(Durable::default());
    let volumes = Volumes::with_steps(place.path().join("volumes"), Limiting::Never, durable.clone());
    volumes.make(&id(1), 64 << 20, TopMode::Root).await.unwrap();
    let top = volumes.mount(&id(1), None).await.unwrap();
    // A killed daemon had created it without syncing it.
    fs::create_dir(top.join("a")).unwrap();
    put(&volumes, "a/b/c.txt", "hello").await.unwrap();
    let durable = durable.0.lock().unwrap();
    for above in [top.clone(), top.join("a")] {
        assert!(durable.contains(&above), "{} lists what is new, and is not synced: {durable:?}", above.display());
    }
}

/// Blocks the creation of the first volume, like a disk that hangs.
#[derive(Debug, Default)]
struct FirstHangs {
    made: std::sync::atomic::AtomicUsize,
    is_released: std::sync::Mutex<bool>,
    released: std::sync::Condvar,
}

impl dorm_steps::Steps for FirstHangs {
    fn reach(&self, step: &'static str) -> Result<(), dorm_steps::Stopped> {
        if step == "volume: draft made" && self.made.fetch_add(1, Ordering::SeqCst) == 0 {
            let waiting = self.is_released.lock().unwrap();
            drop(self.released.wait_while(waiting, |is_released| !*is_released).unwrap());
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_volume_whose_disk_does_not_answer_keeps_no_other_waiting() {
    let place = tempfile::tempdir().unwrap();
    let steps = Arc::new(FirstHangs::default());
    let volumes = Volumes::with_steps(place.path().join("volumes"), Limiting::Never, steps.clone());
    let (hanging, one) = (volumes.clone(), id(1));
    let hanging = tokio::spawn(async move { hanging.make(&one, 64 << 20, TopMode::Root).await });
    while steps.made.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let others = async {
        volumes.make(&id(2), 64 << 20, TopMode::Root).await.unwrap();
        volumes.mount(&id(2), None).await.unwrap();
        volumes.sync(&id(2)).await.unwrap();
        assert_eq!(volumes.settle(BTreeSet::new()).await, 0);
        volumes.remove(&id(2)).await.unwrap();
    };
    let done = tokio::time::timeout(Duration::from_secs(60), others).await;
    *steps.is_released.lock().unwrap() = true;
    steps.released.notify_all();
    hanging.await.unwrap().unwrap();
    done.expect("the others wait for it");
}

/// A volume with a set-ID file that was created with other host IDs is changed when it is mounted;
/// nothing else of it changes, even if an earlier attempt was interrupted.
#[tokio::test]
async fn a_volume_made_with_other_host_ids_is_given_to_the_guests_of_now() {
    use std::os::unix::fs::MetadataExt as _;
    for limiting in [Limiting::WherePossible, Limiting::Never] {
        if let (Limiting::WherePossible, Err(error)) = (limiting, dorm_disk::Disk::probe()) {
            dorm_skip::skip(chain(&error));
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let open = |ids| Volumes::for_guests(place.path(), limiting, ids, dorm_steps::pass());
        let before = open(GuestIds::LEGACY);
        before.make(&id(1), 32 << 20, TopMode::Root).await.unwrap();
        put(&before, "a/kept", "kept").await.unwrap();
        let top = before.mount(&id(1), None).await.unwrap();
        let kept = top.join("a/kept");
        assert_eq!(fs::metadata(&kept).unwrap().uid(), 100_000);
        std::os::unix::fs::chown(&kept, Some(100_007), Some(100_008)).unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o4750)).unwrap();
        before.settle(BTreeSet::new()).await;
        // Volumes of earlier versions have no record.
        fs::remove_file(place.path().join(id(1).as_str()).join(dorm_guest_ids::RECORD)).unwrap();

        let now = open(GuestIds::DEFAULT);
        let base = GuestIds::DEFAULT.base();
        let again = now.mount(&id(1), None).await.unwrap();
        let facts = fs::metadata(again.join("a/kept")).unwrap();
        assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (base + 7, base + 8, 0o4750));
        for path in ["", "a"] {
            assert_eq!(fs::metadata(again.join(path)).unwrap().uid(), base, "{path:?}");
        }
        assert_eq!(get(&now, "a/kept").await.unwrap(), "kept");
        assert_eq!(dorm_disk::recorded(&place.path().join(id(1).as_str())).unwrap(), GuestIds::DEFAULT);
        assert!(!place.path().join(id(1).as_str()).join(OWNERS).exists());
        now.settle(BTreeSet::new()).await;
        now.remove(&id(1)).await.unwrap();
    }
}
