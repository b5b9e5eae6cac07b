//! The storage as its callers see it: asynchronous methods over work that blocks.
//!
//! Dropping the future of a method does not stop work that has begun; it comes to its end, whole or not at all.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::{Digest, SavedStateId};
use dorm_steps::AnySteps;
use dorm_worker::Program;

use crate::damage::{self, Damage};
use crate::error::{StorageError, failed};
use crate::images::documents::BlobDigest;
use crate::images::{
    ExportedImage, Foreign, Image, ImageConfig, ImageSource, Images, ImportLimits, Owner, Progress, Reader, Spool,
};
use crate::pace::{self, Pace};
use crate::room::Room;
use crate::saved_states::{
    self, Below, Copied, Differing, Expected, Export, ExportNote, ImportAs, Imported, Incoming, Listed, Reading,
    SavedState, SavedStateDraft, SavedStates, Sizes,
};
use crate::steps::Steps;
use crate::stored::{self, Checked, Stored};

/// Images and saved states on this host's disk. Cheap to clone; all clones are the same storage.
#[derive(Clone)]
pub struct Storage {
    saved_states: Arc<SavedStates>,
    images: Arc<Images>,
    data: PathBuf,
    room: Room,
}

impl Storage {
    /// Opens the storage with saved states in `data` and images in `images`, making the directories that are missing, and
    /// finishes removals that were under way when an earlier process ended. Drafts of saved states are left: see
    /// [`Storage::drafts`]. `images` may be in use by other daemons of this host.
    ///
    /// # Errors
    /// [`StorageError::Io`] when a directory cannot be made or read.
    pub fn open(data: &Path, images: &Path) -> Result<Self, StorageError> {
        Self::open_with(data, images, dorm_steps::pass())
    }

    /// [`Storage::open`], with somebody who is asked at each step of every operation that changes the disk.
    ///
    /// # Errors
    /// As [`Storage::open`].
    pub fn open_with(data: &Path, images: &Path, steps: AnySteps) -> Result<Self, StorageError> {
        Self::open_for(data, images, GuestIds::DEFAULT, steps)
    }

    /// [`Storage::open_with`], for guests with these host ids. What was made with others is given to these before it is
    /// used: no run with other ids may live then.
    ///
    /// # Errors
    /// As [`Storage::open`].
    pub fn open_for(data: &Path, images: &Path, ids: GuestIds, steps: AnySteps) -> Result<Self, StorageError> {
        let steps = Steps(steps);
        let saved_states = SavedStates::open(data.join("saved_states"), ids, steps.clone())?;
        let images = Images::open(images.to_owned(), ids, steps)?;
        let room = Room::default();
        Ok(Self { saved_states: Arc::new(saved_states), images: Arc::new(images), data: data.to_owned(), room })
    }

    /// The same storage on behalf of a data directory, which says to others that share the images which of them it needs.
    /// To be called before the storage is used.
    ///
    /// # Errors
    /// [`StorageError::Io`] when that cannot be written.
    pub fn owned_by(self, owner: Owner) -> Result<Self, StorageError> {
        let mut images = self.images.reopened();
        images.set_owner(owner)?;
        Ok(Self { images: Arc::new(images), ..self })
    }

    /// The same storage; what it takes in leaves the disk `reserve_bytes`, and images keep to `limits`. To be called before the
    /// storage is used.
    #[must_use]
    pub fn limited(self, reserve_bytes: u64, limits: ImportLimits) -> Self {
        let room = Room::keeping(reserve_bytes);
        let images = self.images.reopened().limited(limits).within(room.clone());
        self.saved_states.keep(room.clone());
        Self { images: Arc::new(images), room, ..self }
    }

    /// The same storage; archives are parsed and decompressed by workers, which are `program` with the roles
    /// [`crate::READERS`]. To be called before the storage is used.
    #[must_use]
    pub fn read_by(self, program: Program) -> Self {
        let images = self.images.reopened().read_by(Reader::Workers(program));
        Self { images: Arc::new(images), ..self }
    }

    /// The room on the disk for what is taken in from elsewhere.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Says that the owner of this storage needs an image, until [`Storage::release_image`]. Durable when this returns.
    ///
    /// # Errors
    /// [`StorageError::NoImage`] when it is not there.
    pub async fn refer_to_image(&self, digest: &Digest) -> Result<(), StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.refer(&digest)).await
    }

    /// Says that the owner of this storage needs an image no more.
    ///
    /// # Errors
    /// [`StorageError::Io`] when that cannot be written.
    pub async fn release_image(&self, digest: &Digest) -> Result<(), StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.release(&digest)).await
    }

    /// The images that the owner of this storage has said it needs.
    ///
    /// # Errors
    /// [`StorageError::Io`] when that cannot be read.
    pub async fn referred_images(&self) -> Result<Vec<Digest>, StorageError> {
        let images = self.images.clone();
        self.blocking(move || images.referred()).await
    }

    /// The other data directories that need an image.
    ///
    /// # Errors
    /// [`StorageError::Io`] when that cannot be read.
    pub async fn foreign_references(&self, digest: &Digest) -> Result<Vec<Foreign>, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.foreign(&digest)).await
    }

    /// Makes an image of a root filesystem (a directory, a tar archive, plain or compressed by gzip or zstd), an OCI
    /// layout (a directory or an archive) or a docker archive, whichever it is by its content, and names it `tag`, which
    /// another image may have had before. Equal content gives the same image: then the one that exists is kept. `progress` is called
    /// from another thread, several times a second at most.
    ///
    /// User and group ids are shifted into the range of the storage; device nodes below `/dev` are left out, since every
    /// sandbox has its own. Needs root.
    ///
    /// # Errors
    /// [`StorageError::Source`] or [`StorageError::Entry`] when something in the source is refused; then nothing is kept.
    pub async fn import(
        &self,
        source: &Path,
        tag: Option<&str>,
        progress: impl Fn(Progress) + Send + 'static,
    ) -> Result<Image, StorageError> {
        let (images, source, tag) = (self.images.clone(), source.to_owned(), tag.map(str::to_owned));
        self.blocking(move || images.import(&source, tag.as_deref(), None, &progress)).await
    }

    /// Makes an image of a manifest whose blobs lie below `blobs` as in an OCI layout (`blobs/sha256/…`), and names it
    /// `tag`. A blob may be missing where [`Storage::has_layer`] says that its layer is here. Everything is checked
    /// against its digest.
    ///
    /// # Errors
    /// As [`Storage::import`].
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

    /// Makes an image of the files of `base`, with those of the saved state of files `over` and all below that on them, and
    /// with these settings. It needs neither afterwards. `build` is kept beside it.
    ///
    /// # Errors
    /// [`StorageError::NoImage`], [`StorageError::Missing`], [`StorageError::Damaged`]; [`StorageError::Entry`] for what no image can
    /// have. Then nothing is kept.
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
            let merged = over.map(|top| saved_states.merged(&top, &rootfs)).transpose()?;
            images.compose(&base, merged.as_ref(), config, build, &progress)
        })
        .await
    }

    /// Writes an image into the file `to`, which must not be there yet: an OCI layout in a tar archive, with all files
    /// in one layer. The same image gives the same bytes. The image is checked before.
    ///
    /// # Errors
    /// [`StorageError::NoImage`], [`StorageError::DamagedImage`], and [`StorageError::Io`] when the file cannot be written.
    pub async fn export_image(&self, digest: &Digest, to: &Path) -> Result<ExportedImage, StorageError> {
        let (images, digest, to) = (self.images.clone(), digest.clone(), to.to_owned());
        self.blocking(move || images.export(&digest, &to)).await
    }

    /// A place for an archive on its way in or out.
    ///
    /// # Errors
    /// [`StorageError::Io`] when it cannot be made.
    pub async fn spool(&self) -> Result<Spool, StorageError> {
        let images = self.images.clone();
        self.blocking(move || images.spool()).await
    }

    /// Whether a layer is here, by what it is when it is unpacked.
    pub async fn has_layer(&self, diff_id: &BlobDigest) -> Result<bool, StorageError> {
        let (images, diff_id) = (self.images.clone(), diff_id.clone());
        self.blocking(move || Ok(images.has_layer(diff_id.hex()))).await
    }

    /// How programs of an image are run.
    ///
    /// # Errors
    /// [`StorageError::NoImage`] when it is not there.
    pub async fn image_config(&self, digest: &Digest) -> Result<ImageConfig, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.config(&digest)).await
    }

    /// Names an image `tag`, which another image may have had before.
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
    /// [`StorageError::Io`] when the directory cannot be read.
    pub async fn images(&self) -> Result<Vec<Image>, StorageError> {
        let images = self.images.clone();
        self.blocking(move || images.list()).await
    }

    /// The image that `reference` means: a tag, a digest, or the beginning of just one digest, 8 digits at least.
    ///
    /// # Errors
    /// [`StorageError::NoImage`] says what there is, [`StorageError::Ambiguous`] what it could be.
    pub async fn resolve(&self, reference: &str) -> Result<Image, StorageError> {
        let (images, reference) = (self.images.clone(), reference.to_owned());
        self.blocking(move || images.resolve(&reference)).await
    }

    /// The image with that digest. Its content is not checked: see [`Storage::verify_image`].
    ///
    /// # Errors
    /// [`StorageError::NoImage`] when it is not there.
    pub async fn image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.get(&digest)).await
    }

    /// The image with that digest, of which every file belongs to guests as they are now: it can be run. Its content is
    /// not checked.
    ///
    /// # Errors
    /// [`StorageError::NoImage`]; [`StorageError::OtherIds`] when its files cannot be given to them.
    pub async fn owned_image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.owned(&digest)).await
    }

    /// With which host ids of guests an image was made.
    ///
    /// # Errors
    /// [`StorageError::Owners`] when its record cannot be read.
    pub async fn made_with(&self, digest: &Digest) -> Result<GuestIds, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.made_with(&digest)).await
    }

    /// Reads the whole image and checks that it still is what its digest says.
    ///
    /// # Errors
    /// [`StorageError::DamagedImage`] when it is not.
    pub async fn verify_image(&self, digest: &Digest) -> Result<Image, StorageError> {
        let (images, digest) = (self.images.clone(), digest.clone());
        self.blocking(move || images.verify(&digest)).await
    }

    /// The image with that digest, which this process has read to its last byte since it began: now, if not before.
    ///
    /// # Errors
    /// [`StorageError::NoImage`]; [`StorageError::DamagedImage`] names the file that is damaged.
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

    /// Everything that can be checked, in order.
    ///
    /// # Errors
    /// [`StorageError::Io`] when a directory cannot be read.
    pub async fn stored(&self) -> Result<Vec<Stored>, StorageError> {
        let (saved_states, images) = (self.saved_states.clone(), self.images.clone());
        self.blocking(move || stored::list(&saved_states, &images)).await
    }

    /// Reads one thing to its last byte and compares it with what was written; none when it is not there any more. What is
    /// damaged is not served from then on. With a pace it is read on a thread of its own, after everything else that the
    /// host reads.
    ///
    /// # Errors
    /// [`StorageError::Io`] when it could not be read, which says nothing about it.
    pub async fn check_stored(&self, what: &Stored, pace: Option<&Pace>) -> Result<Option<Checked>, StorageError> {
        let (saved_states, images, what) = (self.saved_states.clone(), self.images.clone(), what.clone());
        let check = move || stored::check(&saved_states, &images, &what);
        let Some(pace) = pace.cloned() else { return self.blocking(check).await };
        let (sender, answer) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("scrub".to_owned());
        let begun = thread.spawn(move || drop(sender.send(pace::at(&pace, check))));
        begun.map_err(failed("begin to read", self.saved_states.directory()))?;
        answer.await.unwrap_or(Ok(None))
    }

    /// What is known to be damaged: see [`Storage::keep_damage`].
    ///
    /// # Errors
    /// [`StorageError::Io`] when it cannot be read.
    pub async fn damage(&self) -> Result<Vec<Damage>, StorageError> {
        let data = self.data.clone();
        self.blocking(move || damage::damage_in(&data).map_err(failed("read", &data.join(damage::DAMAGED)))).await
    }

    /// Keeps what is known to be damaged, and nothing that was kept before.
    ///
    /// # Errors
    /// [`StorageError::Io`] when it cannot be written.
    pub async fn keep_damage(&self, damage: Vec<Damage>) -> Result<(), StorageError> {
        let data = self.data.clone();
        self.blocking(move || damage::keep(&data, &damage)).await
    }

    /// Removes an image and its tags; one that is not there is a success. `held_by` names what else needs it.
    ///
    /// # Errors
    /// [`StorageError::InUse`] when `held_by` is not empty, a saved state of this storage stands on it or its owner refers to it;
    /// [`StorageError::Referred`] when another data directory needs it.
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

    /// Begins a saved state: reserves `need_bytes` of room and makes an empty directory to write it into. What an earlier
    /// process left half-written under this id is cleared away.
    ///
    /// # Errors
    /// [`StorageError::NoRoom`] when it would not fit beside the other drafts, [`StorageError::Exists`] when the id is taken.
    pub async fn begin(&self, id: &SavedStateId, need_bytes: u64) -> Result<SavedStateDraft, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.begin(&id, need_bytes)).await
    }

    /// Reads the whole saved state and checks that it is what was written, and that this host can use it.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`], [`StorageError::Incompatible`], [`StorageError::MissingImage`].
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

    /// What is written about a saved state. Its files are not read.
    ///
    /// # Errors
    /// [`StorageError::Missing`] when it is not there, [`StorageError::Damaged`] when its manifest is not what was written.
    pub async fn saved_state(&self, id: &SavedStateId) -> Result<SavedState, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.load(&id)).await
    }

    /// The saved states of files that lie on an image, `top` first. Each is read to its last byte and compared with what was
    /// written the first time this process asks for it.
    ///
    /// # Errors
    /// [`StorageError::Missing`] or [`StorageError::Damaged`] with the first that cannot be used.
    pub async fn layers(&self, top: &SavedStateId) -> Result<Vec<SavedState>, StorageError> {
        let (saved_states, top) = (self.saved_states.clone(), top.clone());
        self.blocking(move || saved_states.layers(&top)).await
    }

    /// Reads a saved state to its last byte, whichever engine wrote it.
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

    /// What a tree lies on that is taken of a sandbox with this image, and with `top` and what is below it on that.
    ///
    /// # Errors
    /// [`StorageError::NoImage`], or as [`Storage::layers`].
    pub async fn below(&self, image: &Digest, top: Option<&SavedStateId>) -> Result<Below, StorageError> {
        let (saved_states, images, image, top) =
            (self.saved_states.clone(), self.images.clone(), image.clone(), top.cloned());
        self.blocking(move || saved_states.below(images.get(&image)?.rootfs, top.as_ref())).await
    }

    /// Makes `to` a saved state of files that means the same as `top` with all layers below it, and lies on the image itself.
    /// It is read back from the disk and compared before this answers. Those layers stay as they are.
    ///
    /// # Errors
    /// As [`Storage::layers`] and [`Storage::begin`]; [`StorageError::Damaged`] when it does not come to the same.
    pub async fn flatten(&self, top: &SavedStateId, to: &SavedStateId) -> Result<SavedState, StorageError> {
        let (saved_states, top, to) = (self.saved_states.clone(), top.clone(), to.clone());
        let images = self.images.clone();
        self.blocking(move || saved_states.flatten(&top, &to, &|image| Ok(images.get(image)?.rootfs))).await
    }

    /// The paths at which two stacks of changes on one image, each the lowest first, differ; in order.
    ///
    /// # Errors
    /// [`StorageError::NoImage`]; [`StorageError::Io`] when the image cannot be read.
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

    /// How many saved states of files lie on each other from `top` down.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`].
    pub async fn depth(&self, top: &SavedStateId) -> Result<usize, StorageError> {
        let (saved_states, top) = (self.saved_states.clone(), top.clone());
        self.blocking(move || saved_states.depth(&top)).await
    }

    /// What a saved state takes up on the disk.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`].
    pub async fn sizes(&self, id: &SavedStateId) -> Result<Sizes, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.sizes(&id)).await
    }

    /// What is in the tree of a saved state of files, a directory before what is in it.
    ///
    /// # Errors
    /// [`StorageError::Missing`], or [`StorageError::Damaged`] also when it is a saved state of memory.
    pub async fn listing(&self, id: &SavedStateId) -> Result<Vec<Listed>, StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.listing(&saved_states.load(&id)?)).await
    }

    /// Makes `to` a saved state with the same content as `from`, which is not touched; both can be removed on their own. The
    /// caller has read `from` a moment ago. Copying again onto the same copy changes nothing.
    ///
    /// # Errors
    /// [`StorageError::Missing`] when `from` is not there, [`StorageError::Exists`] when `to` is something else.
    pub async fn copy(&self, from: &SavedStateId, to: &SavedStateId) -> Result<Copied, StorageError> {
        let (saved_states, from, to) = (self.saved_states.clone(), from.clone(), to.clone());
        self.blocking(move || saved_states.copy(&from, &to, Reading::Trusted)).await
    }

    /// [`Storage::copy`], of which every byte is compared with what was written when `from` was, before there is a copy.
    ///
    /// # Errors
    /// As [`Storage::copy`]; [`StorageError::Damaged`] when `from` is not what was written.
    pub async fn copy_checked(&self, from: &SavedStateId, to: &SavedStateId) -> Result<Copied, StorageError> {
        let (saved_states, from, to) = (self.saved_states.clone(), from.clone(), to.clone());
        self.blocking(move || saved_states.copy(&from, &to, Reading::Checked)).await
    }

    /// Settles what a saved state is as one file, with all layers below it and without its image. It is read to its last byte.
    ///
    /// # Errors
    /// [`StorageError::Missing`], [`StorageError::Damaged`], [`StorageError::NoImage`]; [`StorageError::Export`] when there is more in
    /// it than such a file can have.
    pub async fn export(&self, id: &SavedStateId, note: ExportNote) -> Result<Export, StorageError> {
        let (saved_states, images, id) = (self.saved_states.clone(), self.images.clone(), id.clone());
        self.blocking(move || saved_states.export(&id, note, &|image| images.get(image))).await
    }

    /// Reads what such a file says it is, and nothing more.
    ///
    /// # Errors
    /// [`StorageError::Export`] when it is none, [`StorageError::Format`] when it is of a newer version.
    pub async fn open_export(&self, from: impl std::io::Read + Send + 'static) -> Result<Incoming, StorageError> {
        self.blocking(move || Incoming::open(Box::new(from))).await
    }

    /// Makes saved states of such a file, under the ids given. Every byte is compared with what the file says of it. When this
    /// fails there are none.
    ///
    /// # Errors
    /// [`StorageError::Export`] when the file is not what it says, [`StorageError::NoRoom`] when it does not fit, or as
    /// [`Storage::begin`].
    pub async fn import_export(&self, incoming: Incoming, name: &ImportAs) -> Result<Imported, StorageError> {
        let (saved_states, name) = (self.saved_states.clone(), name.clone());
        self.blocking(move || saved_states.import(incoming, &name)).await
    }

    /// Removes a saved state, or what was half-written of one. One that is not there is a success.
    ///
    /// # Errors
    /// [`StorageError::Io`] when files cannot be removed; calling again goes on.
    pub async fn remove(&self, id: &SavedStateId) -> Result<(), StorageError> {
        let (saved_states, id) = (self.saved_states.clone(), id.clone());
        self.blocking(move || saved_states.remove(&id)).await
    }

    /// The ids of all complete saved states, in order.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the directory cannot be read.
    pub async fn saved_states(&self) -> Result<Vec<SavedStateId>, StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || saved_states.list()).await
    }

    /// The ids of half-written saved states that nobody writes any more: [`Storage::remove`] clears them away.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the directory cannot be read.
    pub async fn drafts(&self) -> Result<Vec<SavedStateId>, StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || saved_states.drafts()).await
    }

    /// The saved states and images whose description cannot be read, each by its name with the reason. They are refused when
    /// they are needed, and stay.
    ///
    /// # Errors
    /// [`StorageError::Io`] when a directory cannot be read.
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

    /// How many bytes could still be written beside the saved states.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the file system does not answer.
    pub async fn free_bytes(&self) -> Result<u64, StorageError> {
        let saved_states = self.saved_states.clone();
        self.blocking(move || crate::disk::free_bytes(saved_states.directory())).await
    }

    /// The directory above the images, if there is one, that bars the way to them for engines that run with guest ids:
    /// everybody must be able to pass through it, as through `/var/lib`.
    pub fn closed_to_guests(&self) -> Option<PathBuf> {
        self.images.closed_to_guests()
    }

    /// Where the saved states and where the images lie.
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

/// Does work that blocks where it keeps nobody waiting. What belongs to a dead process is not even begun.
pub(crate) async fn blocking<T: Send + 'static>(
    steps: &Steps,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    if !steps.in_place() {
        return tokio::task::spawn_blocking(|| may_block(work))
            .await
            .unwrap_or_else(|error| Err(StorageError::Interrupted(error)));
    }
    let done = if steps.alive() { Some(work()) } else { None };
    match done {
        Some(done) if steps.alive() => done,
        Some(_) | None => std::future::pending().await,
    }
}

thread_local! {
    /// Whether this thread may wait for a disk, although it belongs to a runtime.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

fn may_block<T>(work: impl FnOnce() -> T) -> T {
    let before = MAY_BLOCK.replace(true);
    let done = work();
    MAY_BLOCK.set(before);
    done
}

/// Does work that blocks and that nobody waits for. A thread that may block does it at once.
pub(crate) fn elsewhere(steps: &Steps, work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) if !steps.in_place() && !MAY_BLOCK.get() => drop(runtime.spawn_blocking(|| may_block(work))),
        Ok(_) | Err(_) => work(),
    }
}
