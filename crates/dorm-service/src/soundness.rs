//! Checks whether the data on the disk still is what was written (decision 0024).
//!
//! Images and layers are read to their last byte when they are first used after a start of the
//! daemon, saved states before each use, and everything periodically in the background, slowly.
//! Damaged data is not used: it is named in events, `why`, `dorm doctor`, metrics, and the errors
//! of requests that need it. It is repaired by importing or pulling the same data again.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{Digest, EventKind, Initiator, SavedStateId};
use dorm_storage::{Checked, Damage, DamagedFile, Expected, Image, Pace, SavedState, StorageError, Stored};
use dorm_store::{Change, NewEvent, SandboxRecord};
use tokio::time::Instant;

use crate::error::{ServiceError, chain};
use crate::shared::{Service, Shared, needs};

/// The delay of the first background read after the start: what is needed at once is read first.
const AT_FIRST: Duration = Duration::from_secs(60);
/// The shortest interval between two complete reads.
const EVERY: Duration = Duration::from_secs(86_400);
/// How long the storage is left alone after a read failed.
const AFTER_FAILURE: Duration = Duration::from_secs(60);

impl Shared {
    /// Returns the image and the layers on it, each of which has been read to its last byte since
    /// this daemon started.
    pub(crate) async fn sound(
        self: &Arc<Self>,
        image: &Digest,
        layer: Option<&SavedStateId>,
    ) -> Result<(Image, Vec<SavedState>), StorageError> {
        let read = async {
            let image = self.storage.sound_image(image).await?;
            let layers = match layer {
                Some(top) => self.storage.layers(top).await?,
                None => Vec::new(),
            };
            Ok((image, layers))
        };
        let read = read.await;
        match &read {
            Ok((image, layers)) => {
                self.is_sound(&Stored::Image(image.digest.clone())).await;
                for layer in layers {
                    self.is_sound(&Stored::SavedState(layer.id.clone())).await;
                }
            }
            Err(error) => self.is_damaged(error).await,
        }
        read
    }

    /// Refuses a damaged image or layer as a base, and an image that is not for guests of this
    /// daemon. Missing files are refused by the operations that need them.
    pub(crate) async fn refuse_damaged(
        self: &Arc<Self>,
        image: &Digest,
        layer: Option<&SavedStateId>,
    ) -> Result<(), StorageError> {
        match self.sound(image, layer).await {
            Err(
                error @ (StorageError::DamagedImage { .. }
                | StorageError::Damaged { .. }
                | StorageError::OtherIds { .. }),
            ) => Err(error),
            Err(error) if error.is_unread() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads a saved state to its last byte, and checks that it is what was written and that this
    /// host's engine can use it.
    pub(crate) async fn verify_saved_state(
        self: &Arc<Self>,
        saved_state: &SavedStateId,
    ) -> Result<SavedState, StorageError> {
        let capabilities = self.engine.capabilities();
        // The storage reports what is wrong with one that cannot be read.
        let written_by = self.storage.saved_state(saved_state).await.map(|saved_state| saved_state.facts.build);
        let build = written_by.ok().filter(|build| self.engine.restores(build));
        let expected = Expected {
            engine: capabilities.name.to_owned(),
            build: build.unwrap_or_else(|| capabilities.build.clone()),
            cpu: capabilities.cpu.clone(),
        };
        let verified = self.storage.verify(saved_state, &expected).await;
        if let Err(error) = &verified {
            self.is_damaged(error).await;
        }
        verified
    }

    /// Records what an error says about something on the disk.
    pub(crate) async fn is_damaged(self: &Arc<Self>, error: &StorageError) {
        let (stored, file, what) = match error {
            StorageError::DamagedImage { image, file, what } => (Stored::Image(image.clone()), file, what),
            StorageError::Damaged { saved_state, file, what } => (Stored::SavedState(saved_state.clone()), file, what),
            _ => return,
        };
        let known = self.soundness.known().contains_key(&stored);
        if !known {
            self.found_damaged(stored, vec![DamagedFile { file: file.clone(), what: what.clone() }]).await;
        }
    }

    /// Records that something is as it was written, or gone.
    pub(crate) async fn is_sound(&self, stored: &Stored) {
        let before = self.soundness.known().remove(stored);
        if let Some(damage) = before {
            tracing::info!(what = %damage.stored, "damaged data is sound again, or gone");
            self.keep_damage().await;
        }
    }

    async fn keep_damage(&self) {
        let damage = self.soundness.known().values().cloned().collect();
        if let Err(error) = self.storage.keep_damage(damage).await {
            tracing::warn!(error = %chain(&error), "cannot store what is damaged; it has to be found again after a restart");
        }
    }

    /// Loads the damage that an earlier daemon found.
    pub(crate) async fn recall_damage(&self) {
        match self.storage.damage().await {
            Ok(damage) => {
                let known = damage.into_iter().map(|damage| (damage.stored.clone(), damage));
                self.soundness.known().extend(known);
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "cannot load what was found damaged before; it has to be found again")
            }
        }
    }

    async fn found_damaged(self: &Arc<Self>, stored: Stored, files: Vec<DamagedFile>) {
        let damage = Damage { stored: stored.clone(), files, found: self.now() };
        let sentence = damage.sentence();
        if self.soundness.known().insert(stored.clone(), damage).is_some() {
            return;
        }
        tracing::error!("{sentence}; it is not used");
        self.keep_damage().await;
        let living = match self.living().await {
            Ok(living) => living,
            Err(error) => return tracing::warn!(error = %chain(&error), "cannot record an event"),
        };
        let at = self.now();
        let event = |SandboxRecord { sandbox, .. }: SandboxRecord| NewEvent {
            project: sandbox.project,
            sandbox: sandbox.id,
            at,
            kind: EventKind::Damaged,
            initiator: Initiator::Host,
            caller: None,
            operation: None,
            generation: sandbox.generation,
            detail: Some(sentence.clone()),
            took: None,
            bytes: None,
        };
        let events: Vec<_> = living.into_iter().filter(|record| needs(&record.sandbox, &stored)).map(event).collect();
        if !events.is_empty()
            && let Err(error) = self.commit(Change { events, ..Change::default() }).await
        {
            tracing::warn!(error = %chain(&error), "cannot record an event");
        }
    }

    async fn take_down(self: &Arc<Self>, stored: &Stored, checked: Option<&Checked>) {
        match checked {
            Some(checked) if !checked.damaged.is_empty() => {
                self.found_damaged(stored.clone(), checked.damaged.clone()).await;
            }
            Some(_) | None => self.is_sound(stored).await,
        }
    }
}

impl Service {
    /// Returns everything on the disk that [`Service::verify`] can read.
    ///
    /// # Errors
    ///
    /// Fails if a directory cannot be read.
    pub async fn stored(&self) -> Result<Vec<Stored>, ServiceError> {
        self.shared.all_stored().await
    }

    /// Reads one thing to its last byte and compares it with what was written. `None` if it does
    /// not exist any more.
    ///
    /// # Errors
    ///
    /// Fails if it could not be read, which says nothing about its content.
    pub async fn verify(&self, stored: &Stored) -> Result<Option<Checked>, ServiceError> {
        let checked = self.shared.storage.check_stored(stored, None).await?;
        self.shared.take_down(stored, checked.as_ref()).await;
        Ok(checked)
    }

    /// Returns the damage to things that have not been found sound or gone since.
    pub fn damaged(&self) -> Vec<Damage> {
        self.shared.soundness.known().values().cloned().collect()
    }
}

/// Reads everything on the disk, one thing after the other and no faster than configured, at most
/// once a day.
pub(crate) async fn keep_scrubbing(service: Service) {
    let shared = service.shared;
    let Some(bytes_per_second) = shared.settings.scrub_bytes_per_second.filter(|pace| *pace > 0) else { return };
    let pace = Pace::new(bytes_per_second);
    let mut pause = AT_FIRST;
    while !shared.stops_within(pause).await {
        let began = Instant::now();
        let scrub = tokio::select! {
            biased;
            () = shared.stopping.cancelled() => break,
            scrub = shared.scrub(&pace) => scrub,
        };
        if let Err(error) = scrub {
            tracing::warn!(error = %chain(&error), "cannot list the data on the disk for reading");
        }
        pause = EVERY.saturating_sub(began.elapsed()).max(AFTER_FAILURE);
    }
    pace.stop();
}

impl Shared {
    /// Returns everything on the disk. Damage of things that are gone is forgotten.
    async fn all_stored(self: &Arc<Self>) -> Result<Vec<Stored>, ServiceError> {
        let known: Vec<Stored> = self.soundness.known().keys().cloned().collect();
        let all = self.storage.stored().await?;
        for gone in known.iter().filter(|stored| !all.contains(stored)) {
            self.is_sound(gone).await;
        }
        Ok(all)
    }

    async fn scrub(self: &Arc<Self>, pace: &Pace) -> Result<(), ServiceError> {
        let mut all = self.all_stored().await?;
        // A daemon that never runs long enough to read everything must not read the same things
        // each time.
        let at = usize::from(u16::from_be_bytes(self.ids().random())) % all.len().max(1);
        all.rotate_left(at);
        for stored in all {
            match self.storage.check_stored(&stored, Some(pace)).await {
                Ok(checked) => {
                    let bytes = checked.as_ref().map_or(0, |checked| checked.bytes);
                    metrics::counter!("dorm_scrubbed_bytes_total").increment(bytes);
                    self.take_down(&stored, checked.as_ref()).await;
                }
                Err(error) => {
                    tracing::warn!(what = %stored, error = %chain(&error), "cannot read data for checking; retrying at the next round");
                    if self.stops_within(AFTER_FAILURE).await {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}
