//! A part of the proof with one daemon of its own, from an empty directory to an empty host.

use std::path::PathBuf;

use anyhow::Result;

use crate::Setting;
use crate::proof::Place;
use crate::world::World;

/// How a part ended.
pub(crate) struct Ended {
    /// Its error, if it had one.
    pub(crate) found: Option<anyhow::Error>,
    pub(crate) interrupted: bool,
    /// Leftovers that could not be cleared away afterwards.
    pub(crate) remains: Vec<String>,
    place: Place,
}

impl Ended {
    /// Removes its directory, unless something is left there. Returns a copy of the daemon's output
    /// if something was found, as `found` and the caller say, or is left.
    ///
    /// # Errors
    /// If the directory cannot be removed.
    pub(crate) fn close(&self, finds: bool) -> Result<Option<PathBuf>> {
        let keeps = finds || self.found.is_some() || !self.remains.is_empty();
        let log = if keeps { self.place.keep_log() } else { None };
        self.place.remove(&self.remains)?;
        Ok(log)
    }
}

/// Does `work` with a daemon. `interrupted` stops it; in any case everything that it made is
/// cleared away; the caller closes the result. `tell` gets progress lines for people.
///
/// # Errors
/// If it cannot begin: no image, no directory, no daemon.
pub(crate) async fn session(
    setting: &Setting,
    interrupted: impl Future<Output = ()>,
    tell: &(dyn Fn(&str) + Sync),
    work: impl AsyncFnOnce(&mut World) -> Result<()>,
) -> Result<Ended> {
    let place = Place::make(&setting.directory)?;
    let started = World::start(setting, place.path(), &place.path().join("data"), &setting.images, &place.log());
    let mut world = match started {
        Ok(world) => world,
        Err(error) => {
            place.remove(&[])?;
            return Err(error);
        }
    };
    let ended = tokio::select! {
        ended = work(&mut world) => Some(ended),
        () = interrupted => None,
    };
    let mut remains = Vec::new();
    let is_whole = matches!(ended, Some(Ok(())));
    if !(is_whole && world.end().await.is_ok_and(|faults| faults.is_empty())) {
        tell("clearing away");
        remains = world.abandon().await;
    }
    let interrupted = ended.is_none();
    Ok(Ended { found: ended.and_then(Result::err), interrupted, remains, place })
}
