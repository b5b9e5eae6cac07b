//! The public interface of the storage: asynchronous methods over blocking work.
//!
//! Dropping the future of a method does not stop work that has begun; it completes, or leaves
//! nothing behind.

mod builds;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, SavedStateId};
use dorm_ports::Progress;
use dorm_steps::AnySteps;
use dorm_worker::Program;

use crate::blocking::blocking;
use crate::builds::Builds;
use crate::check;
use crate::damage::{self, Damage};
use crate::error::{StorageError, failed};
use crate::foreign::Foreign;
use crate::images::documents::BlobDigest;
use crate::images::{ExportedImage, Image, ImageConfig, ImageSource, Images, ImportLimits, Owner, Reader, Spool};
use crate::pace::{self, Pace};
use crate::room::Room;
use crate::saved_states::{
    self, BaseImage, Below, Copied, Differing, Expected, Export, ExportNote, ImportAs, Imported, Incoming, Listed,
    Reading, SavedState, SavedStateDraft, SavedStates, Sizes,
};
use crate::steps::Steps;
use crate::stored::{Checked, Stored};

/// The images and saved states on this host's disk. Cheap to clone; all clones are the same
/// storage.
#[derive(Clone)]
pub struct Storage {
    saved_states: Arc<SavedStates>,
    images: Arc<Images>,
    builds: Arc<Builds>,
    data: PathBuf,
    room: Room,
}

impl Storage {
    /// Opens the storage with saved states in `data` and images in `images`. Creates missing
    /// directories, and finishes removals that an earlier process had begun. Drafts of saved states
    /// are kept: see [`Storage::drafts`]. `images` may be in use by other daemons of this host.
    ///
    /// # Errors
    /// [`StorageError::Io`] if a directory cannot be created or read.
    pub fn open(data: &Path, images: &Path) -> Result<Self, StorageError> {
        Self::open_with(data, images, dorm_steps::pass())
    }

    /// Like [`Storage::open`]; `steps` is called at each step of every operation that changes the
    /// disk.
    ///
    /// # Errors
    /// As [`Storage::open`].
    pub fn open_with(data: &Path, images: &Path, steps: AnySteps) -> Result<Self, StorageError> {
        Self::open_for(data, images, GuestIds::DEFAULT, steps)
    }

    /// Like [`Storage::open_with`], for guests with these host ids. Files made for other ids are
    /// changed to these before use; no run with other ids may be alive then.
    ///
    /// # Errors
    /// As [`Storage::open`].
    pub fn open_for(data: &Path, images: &Path, ids: GuestIds, steps: AnySteps) -> Result<Self, StorageError> {
        let steps = Steps(steps);
        let saved_states = SavedStates::open(data, ids, steps.clone())?;
        let builds = Arc::new(Builds::open(data, steps.clone())?);
        let images = Images::open(images.to_owned(), ids, steps)?;
        let room = Room::default();
        Ok(Self { saved_states: Arc::new(saved_states), images: Arc::new(images), builds, data: data.to_owned(), room })
    }

    /// Sets the data directory that owns this storage, so that other data directories which share
    /// the images can see which of them it needs. Call this before the storage is used.
    ///
    /// # Errors
    /// [`StorageError::Io`] if that cannot be written.
    pub fn owned_by(self, owner: Owner) -> Result<Self, StorageError> {
        let mut images = self.images.reopened();
        images.set_owner(owner)?;
        Ok(Self { images: Arc::new(images), ..self })
    }

    /// Sets the limits of imports: they leave `reserve_bytes` of the disk free, and images keep to
    /// `limits`. Call this before the storage is used.
    #[must_use]
    pub fn limited(self, reserve_bytes: u64, limits: ImportLimits) -> Self {
        let room = Room::with_reserve(reserve_bytes);
        let images = self.images.reopened().limited(limits).within(room.clone());
        self.saved_states.keep(room.clone());
        Self { images: Arc::new(images), room, ..self }
    }

    /// Makes workers parse and decompress archives: `program` with the roles [`crate::READERS`].
    /// Call this before the storage is used.
    #[must_use]
    pub fn read_by(self, program: Program) -> Self {
        let images = self.images.reopened().read_by(Reader::Workers(program));
        Self { images: Arc::new(images), ..self }
    }

    /// The room on the disk for imports and fetched files.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Records that the owner of this storage needs an image, until [`Storage::release_image`].
    /// Durable when this returns.
    ///
    /// # Errors
    /// [`StorageError::NoImage`] if there is no such image.
    pub async fn refer_to_image(&self, digest: &Digest) -> Result<(), StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.refer(&digest)).await
    }

    /// Records that the owner of this storage no longer needs an image.
    ///
    /// # Errors
    /// [`StorageError::Io`] if that cannot be written.
    pub async fn release_image(&self, digest: &Digest) -> Result<(), StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.release(&digest)).await
    }

    /// The images that the owner of this storage needs, as recorded by [`Storage::refer_to_image`].
    ///
    /// # Errors
    /// [`StorageError::Io`] if the record cannot be read.
    pub async fn referred_images(&self) -> Result<Vec<Digest>, StorageError> {
        let images = self.images.clone();
        self.blocking(move || images.referred()).await
    }

    /// The other data directories that need an image.
    ///
    /// # Errors
    /// [`StorageError::Io`] if the records cannot be read.
    pub async fn foreign_references(&self, digest: &Digest) -> Result<Vec<Foreign>, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.foreign(&digest)).await
    }

    /// Imports an image from a root file system (a directory, or a tar archive, plain or compressed
    /// by gzip or zstd), an OCI layout (a directory or an archive) or a docker archive; the format
    /// is detected from the content. `tag` then names this image, even if it named another one
    /// before. Equal content gives the same image: if it exists already, it is kept. `progress` is
    /// called from another thread, at most several times a second.
    ///
    /// User and group ids are shifted into the range of the storage; device nodes below `/dev` are
    /// left out, since every sandbox has its own. Needs root.
    ///
    /// # Errors
    /// [`StorageError::Source`] or [`StorageError::Entry`] if something in the source is refused;
    /// then nothing is kept.
    pub async fn import(
        &self,
        source: &Path,
        tag: Option<&str>,
        progress: impl Fn(Progress) + Send + 'static,
    ) -> Result<Image, StorageError> {
        let (images, source, tag) = (self.images.clone(), source.to_owned(), tag.map(str::to_owned));
        self.blocking(move || images.import(&source, tag.as_deref(), None, &progress)).await
    }

    /// Imports an image from its manifest. The blobs are below `blobs` as in an OCI layout
    /// (`blobs/sha256/…`); the blob of a layer for which [`Storage::has_layer`] is true may be
    /// missing. `tag` names the image. Everything is checked against its digest.
    ///
    /// # Errors
    /// As for [`Storage::import`].
    pub async fn import_blobs(
        &self,
        blobs: &Path,
        manifest: &BlobDigest,
        source: ImageSource,
        tag: Option<&str>,
        progress: impl Fn(Progress) + Send + 'static,
    ) -> Result<Image, StorageError> {
        let (images, blobs, tag) = (self.images.clone(), blobs.to_owned(), tag.map(str::to_owned));
        let manifest = manifest.clone();
        self.blocking(move || images.import_blobs(&blobs, &manifest, source, tag.as_deref(), &progress)).await
    }

    /// Creates an image from the files of `base`, those of the filesystem saved state `over` and of
    /// all layers below it, and these settings. The new image needs none of them afterwards.
    /// `build` is stored with it. Everything is read.
    ///
    /// # Errors
    /// [`StorageError::NoImage`], [`StorageError::Missing`]; [`StorageError::DamagedImage`] and
    /// [`StorageError::Damaged`] if a file is not what it was;
    /// [`StorageError::Entry`] for an entry that no image can have. Then nothing is kept.
    pub async fn compose_image(
        &self,
        base: &Digest,
        over: Option<&SavedStateId>,
        config: ImageConfig,
        build: Option<String>,
        progress: impl Fn(Progress) + Send + 'static,
    ) -> Result<Image, StorageError> {
        let (images, saved_states) = (self.images.clone(), self.saved_states.clone());
        let (base, over) = (base.clone(), over.cloned());
        self.blocking(move || {
            let rootfs = images.owned(&base)?.rootfs;
            let merged = over.map(|top| {
                saved_states.distrust(&top)?;
                saved_states.merged(&top, &rootfs)
            });
            let merged = merged.transpose()?;
            images.compose(&base, merged.as_ref(), config, build, &progress)
        })
        .await
    }

    /// Exports an image to the file `to`, which must not exist: a tar archive of an OCI layout,
    /// with all files in one layer. The same image gives the same bytes. The image is verified
    /// first.
    ///
    /// # Errors
    /// [`StorageError::NoImage`], [`StorageError::DamagedImage`], and [`StorageError::Io`] if the
    /// file cannot be written.
    pub async fn export_image(&self, digest: &Digest, to: &Path) -> Result<ExportedImage, StorageError> {
        let (images, digest, to) = (self.images.clone(), digest.clone(), to.to_owned());
        self.blocking(move || images.export(&digest, &to)).await
    }

    /// A temporary place for an archive that is imported or exported.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be created.
    pub async fn spool(&self) -> Result<Spool, StorageError> {
        let images = self.images.clone();
        self.blocking(move || images.spool()).await
    }

    /// Whether the storage has a layer, identified by the digest of its unpacked archive.
    pub async fn has_layer(&self, diff_id: &BlobDigest) -> Result<bool, StorageError> {
        let (images, diff_id) = (self.images.clone(), diff_id.clone());
        self.blocking(move || Ok(images.has_layer(diff_id.hex()))).await
    }

    /// The configuration of an image: how its programs are run.
    ///
    /// # Errors
    /// [`StorageError::NoImage`] if there is no such image.
    pub async fn image_config(&self, digest: &Digest) -> Result<ImageConfig, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.config(&digest)).await
    }

    /// Tags an image. If `tag` named another image before, it now names this one.
    ///
    /// # Errors
    /// [`StorageError::Tag`], [`StorageError::NoImage`].
    pub async fn tag(&self, digest: &Digest, tag: &str) -> Result<Image, StorageError> {
        let (images, digest, tag) = (self.images.clone(), digest.clone(), tag.to_owned());
        self.blocking(move || images.name(&digest, &tag)).await
    }

    /// All images, ordered by digest.
    ///
    /// # Errors
    /// [`StorageError::Io`] if the directory cannot be read.
    pub async fn images(&self) -> Result<Vec<Image>, StorageError> {
        let images = self.images.clone();
        self.blocking(move || images.list()).await
    }

    /// Finds the image for `reference`: a tag, a digest, or an unambiguous prefix of a digest with
    /// at least 8 digits.
    ///
    /// # Errors
    /// [`StorageError::NoImage`] lists the images there are, [`StorageError::Ambiguous`] the ones
    /// that match.
    pub async fn resolve(&self, reference: &str) -> Result<Image, StorageError> {
        let (images, reference) = (self.images.clone(), reference.to_owned());
        self.blocking(move || images.resolve(&reference)).await
    }

    /// The image with that digest. Its content is not checked: see [`Storage::verify_image`].
    ///
    /// # Errors
    /// [`StorageError::NoImage`] if there is no such image.
    pub async fn image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.get(&digest)).await
    }

    /// The image with that digest, after its files were given to the current host ids of guests, so
    /// that it can be run. Its content is not checked.
    ///
    /// # Errors
    /// [`StorageError::NoImage`]; [`StorageError::OtherIds`] if its files cannot be given to them.
    pub async fn owned_image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.owned(&digest)).await
    }

    /// The host ids of guests with which an image was made.
    ///
    /// # Errors
    /// [`StorageError::Owners`] if its record cannot be read.
    pub async fn made_with(&self, digest: &Digest) -> Result<GuestIds, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.made_with(&digest)).await
    }

    /// Reads the whole image and checks it against its digest.
    ///
    /// # Errors
    /// [`StorageError::DamagedImage`] if it does not match.
    pub async fn verify_image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.verify(&digest)).await
    }

    /// The image with that digest, verified to the last byte by this process: now, if not before.
    ///
    /// # Errors
    /// [`StorageError::NoImage`]; [`StorageError::DamagedImage`] names the damaged file.
    pub async fn sound_image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.sound(&digest)).await
    }

    /// How many bytes [`Storage::sound_image`] would read now.
    pub async fn unread_bytes(&self, digest: &Digest) -> u64 {
        let (images, digest) = (self.images.clone(), digest.clone());
        let unread = move || Ok(if images.is_known(&digest) { 0 } else { images.get(&digest)?.bytes });
        self.blocking(unread).await.unwrap_or(0)
    }

    /// Everything that can be checked with [`Storage::check_stored`], in order.
    ///
    /// # Errors
    /// [`StorageError::Io`] if a directory cannot be read.
    pub async fn stored(&self) -> Result<Vec<Stored>, StorageError> {
        let (saved_states, images) = (self.saved_states.clone(), self.images.clone());
        self.blocking(move || check::list(&saved_states, &images)).await
    }

    /// Reads a stored object to its last byte and compares it with its recorded hash; none if it no
    /// longer exists. An object found to be damaged is not served from then on. With a pace, it is
    /// read on a thread of its own, with a lower priority than all other reads of the host.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it could not be read; whether it is damaged is then unknown.
    pub async fn check_stored(&self, what: &Stored, pace: Option<&Pace>) -> Result<Option<Checked>, StorageError> {
        let (saved_states, images, what) = (self.saved_states.clone(), self.images.clone(), what.clone());
        let check = move || check::check(&saved_states, &images, &what);
        let Some(pace) = pace.cloned() else { return self.blocking(check).await };
        let (sender, answer) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("scrub".to_owned());
        let begun = thread.spawn(move || drop(sender.send(pace::at(&pace, check))));
        begun.map_err(failed("begin to read", self.saved_states.directory()))?;
        answer.await.unwrap_or(Ok(None))
    }

    /// The known damage: see [`Storage::keep_damage`].
    ///
    /// # Errors
    /// [`StorageError::Io`] if the record cannot be read.
    pub async fn damage(&self) -> Result<Vec<Damage>, StorageError> {
        let data = self.data.clone();
        self.blocking(move || damage::damage_in(&data).map_err(failed("read", &data.join(damage::DAMAGED)))).await
    }

    /// Replaces the record of known damage.
    ///
    /// # Errors
    /// [`StorageError::Io`] if it cannot be written.
    pub async fn keep_damage(&self, damage: Vec<Damage>) -> Result<(), StorageError> {
        let data = self.data.clone();
        self.blocking(move || damage::keep(&data, &damage)).await
    }

    /// Removes the tags of an image that begin with `prefix`.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub async fn untag_image(&self, digest: &Digest, prefix: &str) -> Result<(), StorageError> {
        let (images, digest, prefix) = (self.images.clone(), digest.clone(), prefix.to_owned());
        self.blocking(move || images.unname(&digest, &prefix)).await
    }

    /// Removes an image and its tags. Succeeds if there is no such image. `held_by` names further
    /// users of the image.
    ///
    /// # Errors
    /// [`StorageError::InUse`] if `held_by` is not empty, a saved state of this storage is based on
    /// the image or its owner refers to it; [`StorageError::Referred`] if another data directory
    /// needs it.
    pub async fn remove_image(&self, digest: &Digest, held_by: &[String]) -> Result<(), StorageError> {
        let (images, saved_states) = (self.images.clone(), self.saved_states.clone());
        let (digest, mut held_by) = (digest.clone(), held_by.to_vec());
        self.blocking(move || {
            held_by.extend(saved_states.standing_on(&digest)?.iter().map(|id| format!("saved state {id}")));
            if !held_by.is_empty() {
                return Err(StorageError::InUse { image: digest, held_by });
            }
            images.remove(&digest)
        })
        .await
    }

    /// Begins a saved state: reserves `need_bytes` of room and creates an empty directory for it. A
    /// draft that an earlier process left under this id is removed.
    ///
    /// # Errors
    /// [`StorageError::NoRoom`] if it does not fit beside the other drafts,
    /// [`StorageError::Exists`] if the id is taken.
    pub async fn begin(&self, id: &SavedStateId, need_bytes: u64) -> Result<SavedStateDraft, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.begin(&id, need_bytes)).await
    }

    /// Returns where the saved state is if it is complete.
    pub fn saved_state_directory(&self, id: &SavedStateId) -> PathBuf {
        self.saved_states.path(id, "")
    }

    /// Checks that a saved state of `need_bytes` could begin now. Nothing is reserved.
    ///
    /// # Errors
    /// [`StorageError::NoRoom`] if there is not enough, [`StorageError::Io`] if the disk cannot be
    /// asked.
    pub async fn has_room(&self, need_bytes: u64) -> Result<(), StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || saved_states.has_room(need_bytes)).await
    }

    /// Reads the whole saved state and checks that it is undamaged and that this host can use it.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`], [`StorageError::Incompatible`],
    /// [`StorageError::MissingImage`].
    pub async fn verify(&self, id: &SavedStateId, on: &Expected) -> Result<SavedState, StorageError> {
        let (saved_states, images, id, on) = (self.saved_states.clone(), self.images.clone(), id.clone(), on.clone());
        self.blocking(move || {
            saved_states.verify(&id, &on, &|image| match images.get(image) {
                Ok(_) => Ok(true),
                Err(StorageError::NoImage { .. }) => Ok(false),
                Err(error) => Err(error),
            })
        })
        .await
    }

    /// Verifies those files of a saved state that have one of these names. If its manifest is
    /// missing or damaged, they cannot be compared with anything, and nothing is said of them.
    ///
    /// # Errors
    /// [`StorageError::Damaged`] names one of these files.
    pub async fn verify_files(&self, id: &SavedStateId, names: Vec<String>) -> Result<(), StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.verify_files(&id, &names)).await
    }

    /// The manifest of a saved state. Its files are not read.
    ///
    /// # Errors
    /// [`StorageError::Missing`] if there is no such saved state, [`StorageError::Damaged`] if its
    /// manifest does not match its hash.
    pub async fn saved_state(&self, id: &SavedStateId) -> Result<SavedState, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.load(&id)).await
    }

    /// The filesystem saved states from `top` down to the image, `top` first. Each is read to its
    /// last byte and compared with its hashes the first time this process asks for it.
    ///
    /// # Errors
    /// [`StorageError::Missing`] or [`StorageError::Damaged`] for the first one that cannot be
    /// used.
    pub async fn layers(&self, top: &SavedStateId) -> Result<Vec<SavedState>, StorageError> {
        let (saved_states, top) = (self.saved_states.clone(), top.clone());
        self.blocking(move || saved_states.layers(&top)).await
    }

    /// Reads a saved state to its last byte and checks it. The engine that made it does not matter.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`].
    pub async fn check(&self, id: &SavedStateId) -> Result<SavedState, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || {
            let saved_state = saved_states.load(&id)?;
            saved_states.check_content(&saved_state)?;
            Ok(saved_state)
        })
        .await
    }

    /// The base of a tree that is taken from a sandbox with this image, `top` and the layers below
    /// it.
    ///
    /// # Errors
    /// [`StorageError::NoImage`], or as for [`Storage::layers`].
    pub async fn below(&self, image: &Digest, top: Option<&SavedStateId>) -> Result<Below, StorageError> {
        let (saved_states, images, image, top) =
            (self.saved_states.clone(), self.images.clone(), image.clone(), top.cloned());
        self.blocking(move || saved_states.below(images.get(&image)?.rootfs, top.as_ref())).await
    }

    /// Merges `top` and all layers below it into `to`, a filesystem saved state with the same
    /// content that is based on the image itself. It is read back from the disk and compared before
    /// this returns. The merged layers stay as they are.
    ///
    /// # Errors
    /// As for [`Storage::layers`] and [`Storage::begin`]; [`StorageError::Damaged`] if the result
    /// differs from the layers.
    pub async fn flatten(&self, top: &SavedStateId, to: &SavedStateId) -> Result<SavedState, StorageError> {
        let (saved_states, top, to) = (self.saved_states.clone(), top.clone(), to.clone());
        let images = self.images.clone();
        self.blocking(move || saved_states.flatten(&top, &to, &|image| Ok(images.get(image)?.rootfs))).await
    }

    /// The paths at which two stacks of changes on one image differ, in order. Each stack begins
    /// with its lowest layer.
    ///
    /// # Errors
    /// [`StorageError::NoImage`]; [`StorageError::Io`] if the image cannot be read.
    pub async fn diff(
        &self,
        image: &Digest,
        first: Vec<Vec<Listed>>,
        second: Vec<Vec<Listed>>,
    ) -> Result<Vec<Differing>, StorageError> {
        let (images, image) = (self.images.clone(), image.clone());
        self.blocking(move || {
            let (rootfs, ids) = (images.get(&image)?.rootfs, images.made_with(&image)?);
            saved_states::diff((&rootfs, ids), &first, &second)
        })
        .await
    }

    /// The number of filesystem saved states from `top` down to the image.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`].
    pub async fn depth(&self, top: &SavedStateId) -> Result<usize, StorageError> {
        let (saved_states, top) = (self.saved_states.clone(), top.clone());
        self.blocking(move || saved_states.depth(&top)).await
    }

    /// The disk usage of a saved state.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`].
    pub async fn sizes(&self, id: &SavedStateId) -> Result<Sizes, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.sizes(&id)).await
    }

    /// The entries in the tree of a filesystem saved state, a directory before its entries.
    ///
    /// # Errors
    /// [`StorageError::Missing`], or [`StorageError::Damaged`], also for a memory saved state.
    pub async fn listing(&self, id: &SavedStateId) -> Result<Vec<Listed>, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.listing(&saved_states.load(&id)?)).await
    }

    /// Makes `to` a copy of the saved state `from`, which does not change; each can be removed
    /// without the other. The caller must have verified `from` just before. If `to` already is that
    /// copy, nothing changes.
    ///
    /// # Errors
    /// [`StorageError::Missing`] if there is no `from`, [`StorageError::Exists`] if `to` is
    /// something else.
    pub async fn copy(&self, from: &SavedStateId, to: &SavedStateId) -> Result<Copied, StorageError> {
        let (saved_states, from, to) = (self.saved_states.clone(), from.clone(), to.clone());
        self.blocking(move || saved_states.copy(&from, &to, Reading::Trusted)).await
    }

    /// Like [`Storage::copy`], but every byte of `from` is compared with its recorded hash before
    /// there is a copy.
    ///
    /// # Errors
    /// As for [`Storage::copy`]; [`StorageError::Damaged`] if `from` does not match its hashes.
    pub async fn copy_checked(&self, from: &SavedStateId, to: &SavedStateId) -> Result<Copied, StorageError> {
        let (saved_states, from, to) = (self.saved_states.clone(), from.clone(), to.clone());
        self.blocking(move || saved_states.copy(&from, &to, Reading::Checked)).await
    }

    /// Prepares the export of a saved state as one file, with all layers below it and without its
    /// image. The saved state is read to its last byte.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`], [`StorageError::NoImage`];
    /// [`StorageError::Export`] if it exceeds the limits of an export file.
    pub async fn export(&self, id: &SavedStateId, note: ExportNote) -> Result<Export, StorageError> {
        let (saved_states, images, id) = (self.saved_states.clone(), self.images.clone(), id.clone());
        let base = move |image: &Digest| {
            let Image { rootfs, tags, .. } = images.get(image)?;
            Ok(BaseImage { rootfs, tags })
        };
        self.blocking(move || saved_states.export(&id, note, &base)).await
    }

    /// Reads only the manifest of an export file.
    ///
    /// # Errors
    /// [`StorageError::Export`] if it is no export file, [`StorageError::Format`] if it is of a
    /// newer version.
    pub async fn open_export(&self, from: impl std::io::Read + Send + 'static) -> Result<Incoming, StorageError> {
        self.blocking(move || Incoming::open(Box::new(from))).await
    }

    /// Imports an export file as saved states with the ids given. Every byte is compared with the
    /// manifest. If this fails, there are no saved states.
    ///
    /// # Errors
    /// [`StorageError::Export`] if the file does not match its manifest, [`StorageError::NoRoom`]
    /// if it does not fit, or as for [`Storage::begin`].
    pub async fn import_export(&self, incoming: Incoming, name: &ImportAs) -> Result<Imported, StorageError> {
        let (saved_states, name) = (self.saved_states.clone(), name.clone());
        self.blocking(move || saved_states.import(incoming, &name)).await
    }

    /// Removes a saved state or a draft. Succeeds if there is none.
    ///
    /// # Errors
    /// [`StorageError::Io`] if files cannot be removed; another call continues the removal.
    pub async fn remove(&self, id: &SavedStateId) -> Result<(), StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.remove(&id)).await
    }

    /// The ids of all complete saved states, in order.
    ///
    /// # Errors
    /// [`StorageError::Io`] if the directory cannot be read.
    pub async fn saved_states(&self) -> Result<Vec<SavedStateId>, StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || saved_states.list()).await
    }

    /// The ids of drafts that no process writes any more: [`Storage::remove`] removes them.
    ///
    /// # Errors
    /// [`StorageError::Io`] if the directory cannot be read.
    pub async fn drafts(&self) -> Result<Vec<SavedStateId>, StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || saved_states.drafts()).await
    }

    /// The saved states and images whose manifest cannot be read, each by its name with the reason.
    /// They are refused when they are needed, and stay on the disk.
    ///
    /// # Errors
    /// [`StorageError::Io`] if a directory cannot be read.
    pub async fn unreadable(&self) -> Result<Vec<(String, StorageError)>, StorageError> {
        let (saved_states, images) = (self.saved_states.clone(), self.images.clone());
        self.blocking(move || {
            let saved_states =
                saved_states.unreadable()?.into_iter().map(|(id, error)| (format!("saved state {id}"), error));
            let images = images.unreadable()?.into_iter().map(|(digest, error)| (format!("image {digest}"), error));
            Ok(saved_states.chain(images).collect())
        })
        .await
    }

    /// How many more bytes can be written to the file system of the saved states.
    ///
    /// # Errors
    /// [`StorageError::Io`] if the file system does not answer.
    pub async fn free_bytes(&self) -> Result<u64, StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || crate::disk::free_bytes(saved_states.directory())).await
    }

    /// The directory above the images, if any, that engines which run with guest ids cannot pass
    /// through: every user must be able to pass through it, as through `/var/lib`.
    pub fn closed_to_guests(&self) -> Option<PathBuf> {
        self.images.closed_to_guests()
    }

    /// The directories of the saved states and of the images.
    pub fn directories(&self) -> (PathBuf, PathBuf) {
        (self.saved_states.directory().to_owned(), self.images.directory().to_owned())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        blocking(self.saved_states.steps(), work).await
    }
}
