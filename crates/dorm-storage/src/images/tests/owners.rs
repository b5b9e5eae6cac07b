//! The owners of images' files: host IDs of guests, including images created with other ones, and
//! capabilities without effect on the host.

use std::path::PathBuf;

use dorm_guest_ids::{RECORD, capability};
use dorm_lifecycle::SavedStateId;

use super::layers::Layout;
use super::*;
use crate::images::documents::Packing;
use crate::{Foreign, Owner};

/// `cap_setuid+ep`, as builders store it in archives: executed on the host, it makes anyone root.
const SETUID: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const BASE: u32 = GuestIds::DEFAULT.base();

fn with_attributes(builder: &mut Builder<Vec<u8>>, name: &str, attributes: &[(&str, &[u8])]) {
    builder.append_pax_extensions(attributes.iter().copied()).unwrap();
    builder.append(&header(&file(name, name)), name.as_bytes()).unwrap();
}

/// A hostile image: set-ID files, and capabilities in every form.
fn hostile() -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for one in sample() {
        builder.append(&header(&one), &one.content[..]).unwrap();
    }
    let name = "SCHILY.xattr.security.capability";
    let of_root = |root: u32| {
        let mut value = SETUID.to_vec();
        value[3] = 3;
        value.extend(root.to_le_bytes());
        value
    };
    with_attributes(&mut builder, "cap2", &[(name, &SETUID)]);
    with_attributes(&mut builder, "cap3", &[(name, &of_root(1000))]);
    with_attributes(&mut builder, "rubbish", &[(name, b"rubbish")]);
    let labels: [(&str, &[u8]); 3] = [
        ("SCHILY.xattr.security.selinux", b"system_u:object_r:shadow_t:s0"),
        ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.user.note", b"note"),
    ];
    with_attributes(&mut builder, "labelled", &labels);
    builder.into_inner().unwrap()
}

fn attribute(path: PathBuf, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 64];
    rustix::fs::lgetxattr(path, name, &mut value[..]).ok().map(|length| value[..length].to_vec())
}

fn open(home: &TempDir, ids: GuestIds) -> Storage {
    Storage::open_for(&home.path().join("data"), &home.path().join("images"), ids, pass()).unwrap()
}

fn hostile_attributes(image: &Image, ids: GuestIds) {
    let of = |name: &str| attribute(image.rootfs.join(name), capability::NAME);
    assert_eq!(of("cap2"), capability::bound(&SETUID, ids), "it gives nothing but to root of the guests' ids");
    let others: Vec<_> = ["cap3", "rubbish", "labelled"].into_iter().filter_map(of).collect();
    assert!(others.is_empty(), "{others:?}");
    for name in ["security.selinux", "trusted.overlay.redirect"] {
        assert_eq!(attribute(image.rootfs.join("labelled"), name), None, "{name}");
    }
}

#[tokio::test]
async fn capabilities_of_an_image_mean_nothing_on_the_host_and_other_attributes_are_dropped() {
    let (home, storage) = home();
    let image = import(&storage, &write(&home, &hostile())).await.unwrap();
    hostile_attributes(&image, GuestIds::DEFAULT);
    storage.verify_image(&image.digest).await.unwrap();
    // Any user of this host can execute it and gets no capability; the value itself would give one.
    let value = attribute(image.rootfs.join("cap2"), capability::NAME).unwrap();
    assert_eq!((value.len(), value[3], &value[20..]), (24, 3, &BASE.to_le_bytes()[..]));
    // Layers are unpacked by the same rules.
    let layout = Layout::new(&home).layer(Packing::Gzip, &hostile());
    layout.write();
    let layered = storage.import(&layout.path, Some("layered"), |_| {}).await.unwrap();
    hostile_attributes(&layered, GuestIds::DEFAULT);
    // Other readers of an export get what the builder wrote.
    let to = home.path().join("export.tar");
    storage.export_image(&image.digest, &to).await.unwrap();
    let text = fs::read(&to).unwrap();
    assert!(text.windows(20).any(|window| window == SETUID));
    let again = storage.import(&to, Some("again"), |_| {}).await.unwrap();
    hostile_attributes(&again, GuestIds::DEFAULT);
}

#[tokio::test]
async fn the_digest_of_an_image_does_not_depend_on_the_host_ids() {
    let (home, _) = home();
    let source = write(&home, &hostile());
    let mut digests = Vec::new();
    for ids in [GuestIds::LEGACY, GuestIds::DEFAULT, GuestIds::new(3_000_000).unwrap()] {
        let place = tempfile::tempdir().unwrap();
        let image = import(&open(&place, ids), &source).await.unwrap();
        assert_eq!(fs::metadata(image.rootfs.join("dev")).unwrap().uid(), ids.base());
        digests.push(image.digest);
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// Returns a listing of the host with all owners and modes, with the owners inside.
fn owners(root: &Path, ids: GuestIds) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let facts = path.symlink_metadata().unwrap();
        let (user, group) = (ids.guest(facts.uid()), ids.guest(facts.gid()));
        assert!(user.is_some() && group.is_some(), "{} belongs to {}", path.display(), facts.uid());
        lines.push(format!("{} {user:?} {group:?} {:o}", path.display(), facts.mode()));
        if facts.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

/// Restores the state of versions without a choice of IDs.
fn forget_records(home: &TempDir) {
    let mut open = vec![home.path().to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                open.push(entry);
            } else if entry.file_name().unwrap() == RECORD {
                fs::remove_file(entry).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn an_image_made_with_other_host_ids_gets_those_of_now_before_it_is_used() {
    let (home, _) = home();
    let before = open(&home, GuestIds::LEGACY);
    let plain = import(&before, &write(&home, &archive(&sample()))).await.unwrap();
    let layout = Layout::new(&home).layer(Packing::Gzip, &hostile());
    layout.write();
    let layered = before.import(&layout.path, Some("layered"), |_| {}).await.unwrap();
    let was = [&plain, &layered].map(|image| owners(&image.rootfs, GuestIds::LEGACY));
    // An image as the previous version wrote it: with a capability that has effect on the host.
    rustix::fs::setxattr(layered.rootfs.join("cap2"), capability::NAME, &SETUID, rustix::fs::XattrFlags::empty())
        .unwrap();
    forget_records(&home);

    let now = open(&home, GuestIds::DEFAULT);
    assert_eq!(now.made_with(&plain.digest).await.unwrap(), GuestIds::LEGACY);
    assert_eq!(now.images().await.unwrap().len(), 2, "they are listed");
    for (image, was) in [&plain, &layered].into_iter().zip(was) {
        now.sound_image(&image.digest).await.unwrap();
        assert_eq!(owners(&image.rootfs, GuestIds::DEFAULT), was);
        assert_eq!(now.made_with(&image.digest).await.unwrap(), GuestIds::DEFAULT);
        let closed = fs::metadata(image.rootfs.parent().unwrap()).unwrap();
        assert_eq!((closed.uid(), closed.gid(), closed.mode() & 0o777), (0, BASE, 0o710));
    }
    let cap2 = attribute(layered.rootfs.join("cap2"), capability::NAME);
    assert_eq!(cap2, capability::bound(&SETUID, GuestIds::DEFAULT));
    // Its layer is no longer used, and is unpacked again by the next import that contains it.
    let diff_id = layout.diff_ids[0].clone();
    assert!(!now.has_layer(&diff_id).await.unwrap());
    now.remove_image(&layered.digest, &[]).await.unwrap();
    let again = now.import(&layout.path, Some("layered"), |_| {}).await.unwrap();
    assert_eq!(again.digest, layered.digest);
    assert!(now.has_layer(&diff_id).await.unwrap());
    now.verify_image(&again.digest).await.unwrap();
}

#[tokio::test]
async fn an_image_that_another_data_directory_needs_keeps_its_host_ids_and_is_refused_by_name() {
    let (home, _) = home();
    let owner = |id: &str| Owner { id: id.to_owned(), data: home.path().join(id) };
    fs::create_dir(home.path().join("other")).unwrap();
    let other = open(&home, GuestIds::LEGACY).owned_by(owner("other")).unwrap();
    let source = write(&home, &archive(&sample()));
    let image = import(&other, &source).await.unwrap();
    other.refer_to_image(&image.digest).await.unwrap();
    let was = owners(&image.rootfs, GuestIds::LEGACY);

    let own = open(&home, GuestIds::DEFAULT).owned_by(owner("own")).unwrap();
    let group = || fs::metadata(home.path().join("images")).unwrap().gid();
    assert_eq!(group(), GuestIds::LEGACY.base(), "guests of the other pass as before");
    for refused in
        [own.sound_image(&image.digest).await, own.owned_image(&image.digest).await, import(&own, &source).await]
    {
        let error = refused.unwrap_err();
        let StorageError::OtherIds { needed_by, .. } = &error else { panic!("{error}") };
        assert!(matches!(&needed_by[..], [Foreign { id, .. }] if id == "other"), "{needed_by:?}");
        let text = error.to_string();
        for word in ["100000-165535", "1879048192-1879113727", "data directory", "--images"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    assert_eq!(owners(&image.rootfs, GuestIds::LEGACY), was);
    other.sound_image(&image.digest).await.unwrap();
    other.release_image(&image.digest).await.unwrap();
    own.sound_image(&image.digest).await.unwrap();
    assert_eq!(owners(&image.rootfs, GuestIds::DEFAULT), was);
    open(&home, GuestIds::DEFAULT).owned_by(owner("own")).unwrap();
    assert_eq!(group(), BASE);
}

#[tokio::test]
async fn a_change_of_host_ids_that_was_cut_off_is_completed_at_the_next_start() {
    let (home, _) = home();
    let image = import(&open(&home, GuestIds::LEGACY), &write(&home, &archive(&sample()))).await.unwrap();
    let was = owners(&image.rootfs, GuestIds::LEGACY);
    let directory = image.rootfs.parent().unwrap();
    // It died before it had recorded the new owners.
    let journal = directory.join("owners.journal");
    dorm_disk::change_owners(&image.rootfs, &journal, GuestIds::LEGACY, GuestIds::DEFAULT).unwrap();
    let now = open(&home, GuestIds::DEFAULT);
    assert!(!journal.exists());
    now.sound_image(&image.digest).await.unwrap();
    assert_eq!(owners(&image.rootfs, GuestIds::DEFAULT), was);
    // Or during a change to IDs that are no longer wanted.
    let journal_of = |ids| dorm_disk::change_owners(&image.rootfs, &journal, GuestIds::DEFAULT, ids).unwrap();
    let third = GuestIds::new(3_000_000).unwrap();
    journal_of(third);
    std::os::unix::fs::lchown(image.rootfs.join("dev"), Some(BASE), Some(BASE)).unwrap();
    for ids in [GuestIds::DEFAULT, GuestIds::LEGACY] {
        open(&home, ids).sound_image(&image.digest).await.unwrap();
        assert_eq!(owners(&image.rootfs, ids), was);
    }
}

#[tokio::test]
async fn files_of_saved_states_made_with_other_host_ids_get_those_of_now() {
    let (home, _) = home();
    let before = open(&home, GuestIds::LEGACY);
    let saved_state = crate::saved_states::tree_tests::written(&before, 1, None).await;
    let was = owners_of_tree(&saved_state.root(), GuestIds::LEGACY);
    forget_records(&home);
    let now = open(&home, GuestIds::DEFAULT);
    let id: SavedStateId = saved_state.id.clone();
    let layers = now.layers(&id).await.unwrap();
    assert_eq!(owners_of_tree(&layers[0].root(), GuestIds::DEFAULT), was);
    assert_eq!(now.listing(&id).await.unwrap(), before.listing(&id).await.unwrap());
    // That read it completely, and it is unchanged.
    open(&home, GuestIds::DEFAULT).layers(&id).await.unwrap();
}

/// Like [`owners`], without whiteouts, which have no owner.
fn owners_of_tree(root: &Path, ids: GuestIds) -> Vec<String> {
    let gone = root.join("gone");
    let facts = gone.symlink_metadata().unwrap();
    assert_eq!(facts.uid(), 0);
    fs::rename(&gone, root.with_file_name("aside")).unwrap();
    let lines = owners(root, ids);
    fs::rename(root.with_file_name("aside"), &gone).unwrap();
    lines
}
