//! Operations on an existing run: save its memory, pause, park, resume.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_cgroup::{Cgroup, IoLimits};
use dorm_disk::Disk;
use dorm_engine::{EngineError, RestoredMemory, Saved, SavedFile};
use dorm_lifecycle::RunId;
use dorm_memory_image::{FILES_IMAGE, IMAGE_FILES, PAGES_MAP, PagesMap};

use crate::agents::writer;
use crate::base;
use crate::blocking::{blocking, in_place};
use crate::bundle;
use crate::container::Container;
use crate::control::ImageFiles;
use crate::copies::{Copies, Pages};
use crate::error::GvisorError;
use crate::files;
use crate::held;
use crate::lost;
use crate::memory_pressure::{end_memory_pressure, give_kernel_room};
use crate::notes::Phase;
use crate::parked_memory::release_later;
use crate::pause::{pause, resume, settle};
use crate::release::{has_bases, leaves_copying, maps_saved, saves_files_only};
use crate::shared::Shared;
use crate::slots;

/// The part of a run that is saved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept<'a> {
    /// Memory and files. The image may share files with these earlier ones.
    Memory(&'a [PathBuf]),
    /// Files, as far as the build can leave out memory.
    Files,
}

impl Shared {
    /// [`dorm_engine::Engine::save`] and [`dorm_engine::Engine::save_files`].
    pub(crate) async fn save(&self, id: &RunId, into: &Path, kept: Kept<'_>) -> Result<Saved, EngineError> {
        const OPERATION: &str = "save the memory of";
        let run = self.runs.get(id)?;
        let mut turn = run.turn().await;
        let container = run.living(OPERATION)?;
        end_memory_pressure(&run, container).await;
        pause(container, &mut turn).await.map_err(|error| error.of(OPERATION, id))?;
        run.set_short(false);
        // The daemon waits for the image to be written, and no guest code runs meanwhile.
        container.limit_io(IoLimits::NONE).await;
        let limit = turn.note().map_or(0, |note| note.memory_bytes);
        if limit > 0 {
            give_kernel_room(&run, container, limit).await;
        }
        // Read first: without it the image would be of no use.
        let agent = in_place(|| bundle::agent(&container.home)).map_err(|error| error.of(OPERATION, id))?;
        let build = turn.note().map(|note| note.build.clone());
        let build = build.unwrap_or_else(|| self.host.builds.newest().to_owned());
        turn.pages = None;
        let written = async {
            lost::refuse(container, &mut turn).await?;
            let files = match kept {
                Kept::Files if saves_files_only(&build) => write_files_only(container, into).await?,
                Kept::Files => self.write_image(container, &build, into, &[]).await?,
                Kept::Memory(earlier) => self.write_image(container, &build, into, earlier).await?,
            };
            // Data lost while the memory was written may be part of the image.
            lost::refuse(container, &mut turn).await.inspect_err(|_| in_place(|| remove_files(into)))?;
            if matches!(kept, Kept::Memory(_)) && self.maps_memory() && maps_saved(&build) {
                turn.pages = in_place(|| open_pages(into)).ok().map(Arc::new);
            }
            Ok(files)
        };
        let files = written.await.map_err(|error: GvisorError| error.of(OPERATION, id))?;
        Ok(Saved { files, stopped: turn.stood(), build: writer(&build, &agent) })
    }

    /// [`dorm_engine::Engine::pause`].
    pub(crate) async fn pause(&self, id: &RunId) -> Result<(), EngineError> {
        const OPERATION: &str = "pause";
        let run = self.runs.get(id)?;
        let mut turn = run.turn().await;
        let container = run.living(OPERATION)?;
        end_memory_pressure(&run, container).await;
        pause(container, &mut turn).await.map_err(|error| error.of(OPERATION, id))?;
        run.set_short(false);
        Ok(())
    }

    /// [`dorm_engine::Engine::park`].
    pub(crate) async fn park(&self, id: &RunId) -> Result<(), EngineError> {
        const OPERATION: &str = "park";
        let run = self.runs.get(id)?;
        let mut turn = run.turn().await;
        let container = run.living(OPERATION)?;
        let phase = settle(container, &mut turn).await.map_err(|error| error.of(OPERATION, id))?;
        if phase != Phase::Paused {
            return Err(EngineError::Condition { operation: OPERATION, run: id.clone(), condition: "running" });
        }
        turn.is_parked = true;
        let frozen = container.group(Cgroup::freeze).await;
        frozen.and_then(|()| container.reach("gvisor: frozen")).map_err(|error| error.of(OPERATION, id))?;
        release_later(&run, container, &mut turn, self.listener()).await;
        Ok(())
    }

    /// [`dorm_engine::Engine::mapped_files`].
    pub(crate) async fn mapped_files(&self, id: &RunId, image: PathBuf) -> Vec<String> {
        let Ok(run) = self.runs.get(id) else { return Vec::new() };
        let _turn = run.turn().await;
        let Some(container) = run.container() else { return Vec::new() };
        let pid = container.processes.sandbox.pid();
        blocking(move || Ok::<_, GvisorError>(held::open_in(pid, &image))).await.unwrap_or_else(|_| held::all())
    }

    /// [`dorm_engine::Engine::resume`].
    pub(crate) async fn resume(&self, id: &RunId) -> Result<(), EngineError> {
        const OPERATION: &str = "resume";
        let run = self.runs.get(id)?;
        let mut turn = run.turn().await;
        let container = run.living(OPERATION)?;
        run.set_short(false);
        let is_frozen = container.group(Cgroup::is_frozen).await.map_err(|error| error.of(OPERATION, id))?;
        // A parked guest is only a cache of its sleep image, which is intact. A guest that was
        // merely paused has no other copy. One that an earlier daemon has parked is frozen.
        if is_frozen || turn.is_parked {
            lost::refuse(container, &mut turn).await.map_err(|error| error.of(OPERATION, id))?;
        }
        resume(container, &mut turn).await.map_err(|error| error.of(OPERATION, id))?;
        turn.is_parked = false;
        Ok(())
    }
}

impl Shared {
    fn maps_memory(&self) -> bool {
        self.capabilities.memory == RestoredMemory::Mapped
    }

    /// Writes the memory of the paused guest into `into`. On failure, leaves no file there.
    async fn write_image(
        &self,
        container: &Container,
        build: &str,
        into: &Path,
        earlier: &[PathBuf],
    ) -> Result<Vec<SavedFile>, GvisorError> {
        let (home, pid) = (container.home.clone(), container.processes.sandbox.pid());
        if let Some(path) = blocking(move || slots::deleted(&home, pid)).await? {
            return Err(GvisorError::DeletedOnVolume(path));
        }
        let opened = match has_bases(build) && !self.capabilities.shares_blocks {
            true => {
                let earlier = earlier.to_owned();
                blocking(move || Ok::<_, GvisorError>(base::opened_by(pid, &earlier))).await?
            }
            false => Vec::new(),
        };
        let copied = match leaves_copying(build) {
            true => Some(container.group(Cgroup::usage).await?.memory_bytes),
            false => None,
        };
        if !opened.is_empty() {
            let hash = write_files(container, into, Extent::BesideBase, copied).await?;
            let (image, pages) = (into.to_owned(), opened);
            let written = blocking(move || written(&image, &pages, hash).inspect_err(|_| remove_files(&image))).await?;
            if let Some(files) = written {
                return Ok(files);
            }
            in_place(|| remove_files(into));
        }
        let hash = write_files(container, into, Extent::Whole, copied).await?;
        let image = into.to_owned();
        let whole = PagesMap::default();
        blocking(move || files::written(&image, &whole, hash).inspect_err(|_| remove_files(&image))).await
    }
}

/// Writes the files of the paused guest into `into`. On failure, leaves no file there.
async fn write_files_only(container: &Container, into: &Path) -> Result<Vec<SavedFile>, GvisorError> {
    let created = || create_list_and_content(into).inspect_err(|error| clean_up(error, into));
    let (room, files) = in_place(|| Ok::<_, GvisorError>((room_in(into)?, created()?)))?;
    container.reach("gvisor: files image made")?;
    let written = container.control.save_files(files).await;
    written_or_full(written, container, into, room).await?;
    container.reach("gvisor: files image written")?;
    let image = into.to_owned();
    blocking(move || files::written_without_memory(&image).inspect_err(|_| remove_files(&image))).await
}

/// The extent of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// All memory.
    Whole,
    /// The memory that its base does not have, if that saves enough; the sandbox decides.
    BesideBase,
}

/// Returns the files of an image that may leave out what its base has; `None` if the base is not
/// there any more. `opened` are the pages that the sandbox had open before, and `hash` that of the
/// written ones.
#[allow(clippy::disallowed_methods, reason = "it is called on threads that may block")]
fn written(
    image: &Path,
    opened: &[PathBuf],
    hash: Option<blake3::Hash>,
) -> Result<Option<Vec<SavedFile>>, GvisorError> {
    let map = files::map(image)?;
    let mut all = files::written(image, &map, hash)?;
    let path = image.join(PAGES_MAP);
    let Some(base) = map.base() else {
        fs::remove_file(&path).map_err(|source| GvisorError::file("remove", path, source))?;
        return Ok(Some(all));
    };
    let Some(base) = base::base_file(base, opened) else { return Ok(None) };
    let bytes = fs::metadata(&path).map_err(|source| GvisorError::file("read the metadata of", path, source))?.len();
    all.extend([SavedFile { name: PAGES_MAP.into(), bytes, shared_with: None, blake3: None }, base]);
    Ok(Some(all))
}

/// Has the sandbox write the files of an image. If `copied` is how much memory it uses, the daemon
/// copies the pages, and may know their hash. On failure, leaves no file there.
async fn write_files(
    container: &Container,
    into: &Path,
    extent: Extent,
    copied: Option<u64>,
) -> Result<Option<blake3::Hash>, GvisorError> {
    let writer = if copied.is_some() { Writer::Daemon } else { Writer::Sandbox };
    let (room, files) = in_place(|| Ok::<_, GvisorError>((room_in(into)?, create_files(into, extent, writer)?)))?;
    container.reach("gvisor: image files made")?;
    let written = match copied {
        None => container.control.checkpoint(files, None).await.map(|()| None),
        Some(memory_bytes) => copy_pages(container, into, files, memory_bytes).await,
    };
    let hash = written_or_full(written, container, into, room).await?;
    container.reach("gvisor: image written")?;
    Ok(hash)
}

async fn copy_pages(
    container: &Container,
    into: &Path,
    files: ImageFiles,
    memory_bytes: u64,
) -> Result<Option<blake3::Hash>, GvisorError> {
    let [_, _, pages] = IMAGE_FILES;
    let failed = |source| GvisorError::file("copy the memory of the sandbox into", into.join(pages), source);
    let (copies, socket) = in_place(|| begin_copies(&into.join(pages), memory_bytes)).map_err(failed)?;
    let written = container.control.checkpoint(files, Some(socket)).await;
    let copied = blocking(move || Ok(copies.end())).await?.map_err(failed)?;
    written?;
    let endless = || failed(io::Error::new(io::ErrorKind::InvalidData, "the sandbox did not say where it ends"));
    Ok(copied.ok_or_else(endless)?.hash)
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn open_pages(image: &Path) -> io::Result<fs::File> {
    let [.., pages] = IMAGE_FILES;
    fs::File::open(image.join(pages))
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn begin_copies(path: &Path, memory_bytes: u64) -> io::Result<(Copies, OwnedFd)> {
    let mut open = fs::OpenOptions::new();
    let cached = open.read(true).write(true).open(path)?;
    // Some file systems have no direct I/O.
    let direct = open.custom_flags(libc::O_DIRECT).open(path).ok();
    Copies::begin(Pages::new(cached, direct, memory_bytes)?)
}

/// Removes the files of an image that could not be written, and determines whether the disk was
/// full: `room` is what it had before.
async fn written_or_full<T>(
    written: Result<T, GvisorError>,
    container: &Container,
    into: &Path,
    room: u64,
) -> Result<T, GvisorError> {
    let error = match written {
        Ok(written) => return Ok(written),
        Err(error) => error,
    };
    in_place(|| remove_files(into));
    // The sandbox reports a full disk only as text, which is not parsed.
    if matches!(error, GvisorError::Refused { .. }) && room < need(container).await? {
        let source = io::Error::new(io::ErrorKind::StorageFull, error);
        return Err(GvisorError::file("write the memory into", into, source));
    }
    Err(error)
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn room_in(directory: &Path) -> Result<u64, GvisorError> {
    let room = rustix::fs::statvfs(directory)
        .map_err(|source| GvisorError::file("read the metadata of", directory, source))?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// Returns the maximum size of a memory image of the guest: its memory and the files it has
/// written.
async fn need(container: &Container) -> Result<u64, GvisorError> {
    let memory = container.group(Cgroup::usage).await?;
    let home = container.home.disk();
    let disk = blocking(move || {
        let Some(disk) = Disk::find(&home)? else { return Ok(0) };
        let usage = disk.usage()?;
        Ok(if disk.is_limited() { usage.size_bytes.saturating_sub(usage.available_bytes) } else { 0 })
    });
    Ok(memory.memory_bytes + memory.cache_bytes + disk.await?)
}

/// Who writes the pages of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writer {
    /// The sandbox writes them with direct I/O where the file system supports it, which makes them
    /// durable faster than through its page cache.
    Sandbox,
    /// The sandbox can only read them.
    Daemon,
}

/// Creates the files of a memory image.
#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn create_files(into: &Path, extent: Extent, writer: Writer) -> Result<ImageFiles, GvisorError> {
    let [first, second, third] = IMAGE_FILES;
    let made = || {
        let flags = if writer == Writer::Sandbox { libc::O_DIRECT } else { 0 };
        let mut pages = match create(into, third, flags) {
            Err(GvisorError::File { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                // Some file systems create the file and then refuse to open it with `O_DIRECT`.
                let _ = fs::remove_file(into.join(third));
                create(into, third, 0)
            }
            other => other,
        }?;
        if writer == Writer::Daemon {
            let path = into.join(third);
            pages = fs::File::open(&path).map_err(|source| GvisorError::file("open", &path, source))?.into();
        }
        let mut files = vec![create(into, first, 0)?, create(into, second, 0)?, pages];
        if extent == Extent::BesideBase {
            files.push(create(into, PAGES_MAP, 0)?);
        }
        Ok(ImageFiles(files))
    };
    made().inspect_err(|error| clean_up(error, into))
}

/// Creates the files of an image that has only files. Where the file system supports it, the
/// content is open for direct I/O, too, which the sandbox uses for much content.
#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn create_list_and_content(into: &Path) -> Result<ImageFiles, GvisorError> {
    let [list, content] = FILES_IMAGE;
    let mut files = vec![create(into, list, 0)?, create(into, content, 0)?];
    let direct = fs::OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(into.join(content));
    files.extend(direct.map(OwnedFd::from));
    Ok(ImageFiles(files))
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn create(into: &Path, name: &str, flags: i32) -> Result<OwnedFd, GvisorError> {
    let path = into.join(name);
    let file =
        fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).custom_flags(flags).open(&path);
    file.map(OwnedFd::from).map_err(|source| GvisorError::file("create", path, source))
}

/// Removes the files of an image of which one could not be created.
fn clean_up(error: &GvisorError, into: &Path) {
    let exists = matches!(error, GvisorError::File { source, .. } if source.kind() == io::ErrorKind::AlreadyExists);
    // The existing file belongs to another image and must not be removed.
    if !exists {
        remove_files(into);
    }
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn remove_files(into: &Path) {
    for name in IMAGE_FILES.into_iter().chain(FILES_IMAGE).chain([PAGES_MAP]) {
        // The caller removes the whole directory; this only frees the space early.
        let _ = fs::remove_file(into.join(name));
    }
}
