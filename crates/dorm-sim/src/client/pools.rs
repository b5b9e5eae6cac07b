//! Requests about sandbox pools.

use std::time::Duration;

use dorm_lifecycle::{Claim, Egress, FirstProgram, StateName};
use dorm_service::{Code, CreateFrom, PoolSpec};

use super::{Action, Client};

/// How long a claim waits for a member.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the name of a pool.
fn called(number: u64) -> String {
    format!("pool-{number}")
}

impl Client {
    pub(super) fn choose_pool(&mut self) -> Action {
        let number = self.random.below(2);
        let known = self.world.model.pools();
        if !known.contains(&called(number)) {
            return Action::MakePool(number, self.random.below(3));
        }
        match self.random.below(4) {
            0 => Action::ResizePool(
                number,
                self.random.below(3),
                self.random.chance(50).then(|| 2 + self.random.below(3)),
            ),
            1 => Action::RemovePool(number),
            _ => Action::Claim(number),
        }
    }

    pub(super) async fn use_pool(&mut self, action: &Action, since: u64) {
        let answer = match action {
            Action::MakePool(number, ready) => {
                let Ok(name) = called(*number).parse() else { return };
                let asked = PoolSpec {
                    name,
                    from: CreateFrom::Image("base".to_owned()),
                    program: Some(FirstProgram::None),
                    resources: None,
                    egress: Some(Egress::Public),
                    variables: Default::default(),
                    port_access: None,
                    labels: Default::default(),
                    ready: *ready,
                    most: None,
                };
                self.service.create_pool(asked).await.map(drop)
            }
            Action::ResizePool(number, ready, most) => {
                self.service.resize_pool(&called(*number), *ready, *most).await.map(drop)
            }
            Action::RemovePool(number) => self.service.remove_pool(&called(*number)).await,
            Action::Claim(number) => match self.service.claim(&called(*number), Claim::default(), PATIENCE).await {
                Ok(view) => {
                    self.world.model.claimed(&view.sandbox.id);
                    self.viewed(action, Ok(view), since, |sandbox| sandbox.state.name() == StateName::Running);
                    Ok(())
                }
                // The pool is empty, or was removed meanwhile.
                Err(error) if error.code() == Code::NoRoom => Ok(()),
                Err(error) => Err(error),
            },
            _ => return,
        };
        if let Err(error) = answer {
            self.refused(action, &error);
        }
    }
}
