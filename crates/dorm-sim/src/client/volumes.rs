//! The actions of callers on volumes: few volumes, some for one writer, so that sandboxes compete
//! for them.

use dorm_lifecycle::{MountPath, SandboxId, Writers};
use dorm_service::{AttachmentSpec, Code};

use super::{Action, Client};

/// The number of volumes.
const VOLUMES: u64 = 3;
const BYTES: u64 = 64 << 20;

impl Client {
    pub(super) fn choose_volume(&mut self, id: SandboxId) -> Action {
        let number = self.random.below(VOLUMES);
        match self.random.below(10) {
            0..2 => Action::MakeVolume(number, self.random.chance(50)),
            2..7 => Action::Attach(id, number),
            _ => Action::Detach(id, number),
        }
    }

    pub(super) async fn use_volume(&mut self, action: &Action, since: u64) {
        match action {
            Action::MakeVolume(number, many) => {
                let writers = if *many { Writers::Many } else { Writers::One };
                let Ok(name) = volume(*number).parse() else { return };
                if let Err(error) = self.service.create_volume(name, BYTES, writers).await {
                    self.refused(action, &error);
                }
            }
            Action::Attach(id, number) => {
                let Some(path) = place(*number) else { return };
                let asked = AttachmentSpec::new(volume(*number), path.clone());
                let mut answer = self.service.attach(id, asked.clone()).await;
                if matches!(&answer, Err(error) if error.code() == Code::NotFound)
                    && let (Ok(name), many) = (volume(*number).parse(), self.random.chance(50))
                {
                    let writers = if many { Writers::Many } else { Writers::One };
                    if let Err(error) = self.service.create_volume(name, BYTES, writers).await {
                        return self.refused(action, &error);
                    }
                    answer = self.service.attach(id, asked).await;
                }
                self.viewed(action, answer, since, |sandbox| {
                    sandbox.spec.attachments.iter().any(|one| one.path == path)
                });
            }
            Action::Detach(id, number) => {
                let Some(path) = place(*number) else { return };
                let answer = self.service.detach(id, path.clone()).await;
                self.viewed(action, answer, since, |sandbox| {
                    sandbox.spec.attachments.iter().all(|one| one.path != path)
                });
            }
            _ => {}
        }
    }

    /// Detaches all volumes: another sandbox may hold a volume that this one needs to resume.
    pub(super) async fn detach_all(&mut self, id: &SandboxId) {
        for number in 0..VOLUMES {
            let record = self.world.model.record(id);
            let attachments = record.map(|record| record.sandbox.spec.attachments).unwrap_or_default();
            if attachments.iter().any(|one| Some(&one.path) == place(number).as_ref()) {
                self.insist(&Action::Detach(id.clone(), number)).await;
            }
        }
    }
}

fn volume(number: u64) -> String {
    format!("volume-{number}")
}

fn place(number: u64) -> Option<MountPath> {
    format!("/data-{number}").parse().ok()
}
