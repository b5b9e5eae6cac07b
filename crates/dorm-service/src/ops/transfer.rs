//! Snapshots as files: exported for another host, and imported from one.
//!
//! ```text
//! import: read the manifest ─► reject what cannot be used ─► record the import ─► unpack and compare ─► record the snapshot
//! ```
//!
//! Until its last byte has been compared, only the import is recorded and not the snapshot; if the
//! import ends before, nothing is left. Files are streamed, so that the memory needed does not
//! depend on their size.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use dorm_lifecycle::{Initiator, SandboxId, SnapshotId, SnapshotKind};
use dorm_storage::{ExportNote, Exported, ImportAs, Imported, StorageError};
use dorm_store::{
    Change, Made, Maker, OperationKind, OperationRecord, OperationResult, Removal, SnapshotRecord, SnapshotStatus,
};
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::error::{ServiceError, chain, host_part};
use crate::shared::{Referring, Service};

/// How many pieces are buffered for the slower side.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 256 << 10;
/// How long a sender may be silent.
const SILENCE: Duration = Duration::from_secs(120);
/// How long the rest of a refused file is read, so that its sender receives the reason.
const FAREWELL: Duration = Duration::from_secs(20);
/// How many ancestors of a snapshot an export names.
const PARENTS_MAX: usize = 256;
/// How many sandboxes back the search for secrets goes: more than any lineage has.
const LINE_MAX: usize = 100_000;

/// The file of a snapshot, ready to be sent.
pub struct ExportFile<S> {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its default name.
    pub name: String,
    /// Its content. Ends with an error if the rest cannot be read.
    pub content: S,
}

/// The requested properties of an imported snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImportSpec {
    /// Labels, in addition to those in the file and overriding them.
    pub labels: BTreeMap<String, String>,
    /// How long it is kept before it is deleted automatically; by default until it is deleted
    /// explicitly.
    pub expires: Option<Duration>,
}

impl Service {
    /// Returns a completed snapshot as a file. It has been verified when this returns, and is not
    /// deleted before the whole file is sent.
    ///
    /// # Errors
    ///
    /// `NoSnapshot`, `SnapshotNotReady`; `HoldsSecrets` for memory that may contain secrets; an
    /// error of the storage if the snapshot is damaged.
    pub async fn export_snapshot(
        &self,
        id: &SnapshotId,
    ) -> Result<ExportFile<impl Stream<Item = io::Result<Bytes>> + Send + use<>>, ServiceError> {
        let (using, snapshot) = self.use_snapshot(id).await?;
        self.holds_no_secrets(&snapshot).await?;
        let note = ExportNote {
            snapshot: snapshot.id.clone(),
            parents: self.parents(&snapshot).await?,
            labels: snapshot.labels.clone(),
        };
        let export = self.shared.storage.export(&snapshot.saved_state, note).await.map_err(host_part)?;
        let (bytes, name) = (export.bytes(), format!("{id}.dorm"));
        let (send, receive) = mpsc::channel(PIECES);
        tokio::task::spawn_blocking(move || {
            let _using = using;
            let mut outgoing = Outgoing { send, piece: Vec::with_capacity(PIECE_BYTES) };
            if let Err(error) = export.write_to(&mut outgoing) {
                tracing::debug!(error = %chain(&error), "a snapshot was not sent completely");
                let _ = outgoing.send.blocking_send(Err(io::Error::other(error)));
            }
        });
        Ok(ExportFile { bytes, name, content: ReceiverStream::new(receive) })
    }

    /// Imports the file of a snapshot. When this returns, the snapshot is on disk and verified.
    /// Memory of another build of the engine is imported too, because its files are usable.
    ///
    /// # Errors
    ///
    /// `ImageToImport` if its image is not on this host; `Storage` if the file does not match its
    /// manifest, or there is no room. Nothing of it is left then.
    pub async fn import_snapshot(
        &self,
        from: impl Stream<Item = io::Result<Bytes>> + Send,
        settings: ImportSpec,
    ) -> Result<SnapshotRecord, ServiceError> {
        if let Some(Made::Snapshot(earlier)) = self.earlier() {
            return self.taken_earlier(earlier).await;
        }
        self.shared.admit_write("import a snapshot", 0).await?;
        let (send, receive) = mpsc::channel(PIECES);
        let service = self.clone();
        // The sender may go away at any time; then the import is cut short and removed.
        let work = async move { service.take_in(ArrivingBytes { receive, piece: Bytes::new() }, settings).await };
        let mut work = self.shared.spawn(work);
        let mut pump = pin!(pump(from, send, self.shared.stopping.clone()));
        let done = tokio::select! {
            biased;
            done = &mut work => {
                let _ = tokio::time::timeout(FAREWELL, pump).await;
                done
            }
            () = &mut pump => work.await,
        };
        Ok(self.shared.shown_snapshot(done.unwrap_or(Err(ServiceError::Stopping))?))
    }

    async fn take_in(&self, from: ArrivingBytes, settings: ImportSpec) -> Result<SnapshotRecord, ServiceError> {
        let shared = &self.shared;
        let incoming = shared.storage.open_export(from).await?;
        let about = incoming.about().clone();
        drop(self.has_image(&about).await?);
        let bytes = about.need_bytes().unwrap_or(u64::MAX);
        shared.admit_write("import a snapshot", bytes).await?;
        shared.admit_to_disk_of("import a snapshot", self.project(), bytes).await?;
        let name = ImportAs { saved_state: shared.ids().saved_state(), layer: shared.ids().saved_state() };
        let mut saved_states = vec![name.saved_state.clone()];
        saved_states.extend((about.is_of_memory() && about.tree.is_some()).then(|| name.layer.clone()));
        let limits = &shared.settings.limits;
        let limit = limits.snapshot + limits.time_for(about.need_bytes().unwrap_or_default());
        let operations = saved_states.iter().map(|saved_state| OperationRecord {
            saved_state: Some(saved_state.clone()),
            ..shared.operation(self.project(), OperationKind::Import, self.asked_by(Initiator::User), limit)
        });
        let operations: Vec<_> = operations.collect();
        let ended = |result: &OperationResult| {
            let at = shared.now();
            let end = |operation: &OperationRecord| OperationRecord {
                ended: Some((at, result.clone())),
                ..operation.clone()
            };
            operations.iter().map(end).collect::<Vec<_>>()
        };
        shared.commit(Change { operations: operations.clone(), ..Change::default() }).await?;
        let taken = async {
            let imported = shared.storage.import_export(incoming, &name).await?;
            // Before the references, as everywhere: a deletion may hold up those.
            let _staying = self.staying().await?;
            // An image is not removed while a saved state is based on it; before there was one, it
            // may have been removed.
            let _referring = self.has_image(&about).await?;
            let (snapshot, layer) = self.records(&about, &imported, settings);
            let snapshots = layer.iter().chain([&snapshot]).cloned().collect();
            let operations = ended(&OperationResult::Done);
            let requests = self.made(Made::Snapshot(snapshot.id.clone()));
            shared.commit(Change { snapshots, operations, requests, ..Change::default() }).await?;
            Ok::<_, ServiceError>((snapshot, layer))
        };
        match taken.await {
            Ok((snapshot, layer)) => {
                layer.iter().chain([&snapshot]).for_each(|record| shared.removals.note(record));
                Ok(snapshot)
            }
            // It may be recorded; the next start finds out.
            Err(error) if error.is_unknown() => Err(error),
            Err(error) => {
                let operations = ended(&OperationResult::Failed(error.record()));
                shared.commit(Change { operations, discard: saved_states.clone(), ..Change::default() }).await?;
                // When the caller is told of the refusal, nothing of the snapshot is left.
                shared.discard(saved_states).await;
                Err(error)
            }
        }
    }

    /// Returns the records of the snapshot and of the layer below it, which is deleted with the
    /// last snapshot based on it.
    fn records(
        &self,
        about: &Exported,
        imported: &Imported,
        settings: ImportSpec,
    ) -> (SnapshotRecord, Option<SnapshotRecord>) {
        let shared = &self.shared;
        let now = shared.now();
        let mut labels = about.note.labels.clone();
        labels.extend(settings.labels);
        let layer = imported.layer.as_ref();
        let snapshot = SnapshotRecord {
            id: shared.ids().snapshot(),
            project: self.project().clone(),
            name: None,
            source: about.facts.sandbox.clone(),
            generation: about.facts.generation,
            parent: about.note.parents.first().cloned(),
            kind: if about.is_of_memory() { SnapshotKind::Memory } else { SnapshotKind::Filesystem },
            saved_state: imported.saved_state.id.clone(),
            image: about.facts.image.clone(),
            layer: layer.map(|layer| layer.id.clone()),
            resources: about.facts.resources,
            // The file does not have them: a file from elsewhere must not open anything.
            inherited: None,
            created: now,
            bytes: imported.saved_state.bytes(),
            shares_data: false,
            labels,
            removal: settings.expires.map_or(Removal::Asked, |after| Removal::At(now.after(after))),
            made_by: Maker::Import,
            status: SnapshotStatus::Completed,
        };
        let layer = layer.map(|layer| SnapshotRecord {
            id: shared.ids().snapshot(),
            kind: SnapshotKind::Filesystem,
            saved_state: layer.id.clone(),
            layer: None,
            bytes: layer.bytes(),
            shares_data: false,
            removal: Removal::WhenFree,
            ..snapshot.clone()
        });
        (snapshot, layer)
    }

    async fn has_image(&self, about: &Exported) -> Result<Referring, ServiceError> {
        let image = &about.facts.image;
        match self.shared.refer(image).await {
            Err(StorageError::NoImage { .. }) => {
                Err(ServiceError::ImageToImport { image: image.clone(), tags: about.image_tags.clone() })
            }
            other => Ok(other?),
        }
    }

    /// Returns the ancestors of a snapshot, as far as they are known.
    async fn parents(&self, of: &SnapshotRecord) -> Result<Vec<SnapshotId>, ServiceError> {
        let mut parents: Vec<SnapshotId> = Vec::new();
        let mut next = of.parent.clone();
        while let Some(id) = next.filter(|id| parents.len() < PARENTS_MAX && !parents.contains(id)) {
            next = self.shared.store.snapshot(&id).await?.and_then(|parent| parent.parent);
            parents.push(id);
        }
        Ok(parents)
    }

    /// Rejects memory of a sandbox that has secrets, or that descends from one with secrets: it may
    /// contain them anywhere.
    async fn holds_no_secrets(&self, snapshot: &SnapshotRecord) -> Result<(), ServiceError> {
        if snapshot.kind == SnapshotKind::Filesystem {
            return Ok(());
        }
        let mut seen: BTreeSet<SandboxId> = BTreeSet::new();
        let mut next = Some(snapshot.source.clone());
        while let Some(id) = next.filter(|id| seen.len() < LINE_MAX && !seen.contains(id)) {
            // An imported snapshot was checked when it was exported.
            let Some(record) = self.shared.store.sandbox(&id).await? else { break };
            let names: Vec<String> = record.sandbox.spec.secrets.0.keys().cloned().collect();
            if !names.is_empty() {
                return Err(ServiceError::HoldsSecrets { snapshot: snapshot.id.clone(), sandbox: id, names });
            }
            next = record.sandbox.origin.source().cloned();
            seen.insert(id);
        }
        Ok(())
    }

    /// Rejects memory of another engine, build or CPU, including imported memory, before anything
    /// starts.
    pub(super) async fn can_restore(&self, snapshot: &SnapshotRecord) -> Result<(), ServiceError> {
        if snapshot.kind == SnapshotKind::Filesystem {
            return Ok(());
        }
        // The restore reports what is wrong with a saved state that cannot be read.
        let Ok(saved_state) = self.shared.storage.saved_state(&snapshot.saved_state).await else { return Ok(()) };
        let (needs, engine) = (saved_state.facts, &self.shared.engine);
        let has = engine.capabilities();
        let build = if engine.restores(&needs.build) { needs.build.clone() } else { has.build.clone() };
        let rows = [
            ("engine", needs.engine, has.name.to_owned()),
            ("build", needs.build, build),
            ("cpu", needs.cpu, has.cpu.clone()),
        ];
        match rows.into_iter().find(|(_, needs, has)| needs != has) {
            None => Ok(()),
            Some((what, needs, has)) => {
                let source = StorageError::Incompatible { saved_state: saved_state.id, what, has, needs };
                Err(ServiceError::SnapshotUnusable { snapshot: snapshot.id.clone(), source })
            }
        }
    }
}

/// Passes data on until it ends, or the service stops. Data after the receiver is done is dropped.
async fn pump(
    from: impl Stream<Item = io::Result<Bytes>>,
    to: mpsc::Sender<io::Result<Bytes>>,
    stopping: CancellationToken,
) {
    let mut from = pin!(from);
    loop {
        let next = tokio::select! {
            biased;
            () = stopping.cancelled() => Some(Err(io::Error::other("the daemon is stopping"))),
            next = tokio::time::timeout(SILENCE, from.next()) => match next {
                Ok(next) => next,
                Err(_) => Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the sender sent nothing more"))),
            },
        };
        let Some(piece) = next else { return };
        let is_last = piece.is_err();
        let _ = to.send(piece).await;
        if is_last {
            return;
        }
    }
}

/// Arriving data, for a reader on a blocking thread.
struct ArrivingBytes {
    receive: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for ArrivingBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receive.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.piece.len());
        let piece = self.piece.split_to(length);
        buffer.get_mut(..length).unwrap_or_default().copy_from_slice(&piece);
        Ok(length)
    }
}

/// Outgoing data, from a writer on a blocking thread, which waits until it is taken.
struct Outgoing {
    send: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(bytes.get(..length).unwrap_or_default());
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.send.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
