//! Permits the addresses of permitted names in the gateway of one sandbox.
//!
//! An address is permitted before the sandbox gets the reply that contains it, and for a while
//! after the reply has expired, since programs cache addresses. Private addresses are never
//! permitted: the owner of a name can point it anywhere.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dorm_engine::{LeaseId, NetworkError};
use dorm_lifecycle::is_public;
use tokio::sync::{Mutex as Turn, OwnedRwLockReadGuard, Semaphore};
use tokio::time::Instant;

use super::message::Address;
use crate::lease::{Earlier, Leases};
use crate::policy::Policy;

/// The minimum time for which an address is permitted, whatever its TTL: many names change their
/// addresses every few seconds.
const LEAST: Duration = Duration::from_secs(300);
/// The maximum time for which an address is permitted.
const MOST: Duration = Duration::from_secs(24 * 3600);
/// How long programs may use a reply after it has expired.
const GRACE: Duration = Duration::from_secs(60);
/// How many permitted addresses of one sandbox are remembered. This only saves commands.
const KNOWN_MAX: usize = 1024;
/// The pause between two commands of a sandbox that learns many addresses.
const PAUSE: Duration = Duration::from_millis(10);

/// The rules for the names of one sandbox, until its egress changes.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Policy,
    /// By group of names and address.
    known: Mutex<HashMap<(usize, Ipv4Addr), Instant>>,
}

impl Rules {
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self { policy, known: Mutex::default() })
    }

    /// Returns the addresses of a reply that must be permitted and for how long, without those that
    /// already are.
    fn unknown(&self, group: usize, addresses: &[Address]) -> Vec<(Ipv4Addr, Duration)> {
        let now = Instant::now();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let times = addresses.iter().filter(|found| is_public(found.address)).map(|found| {
            let time = Duration::from_secs(found.ttl.into()).clamp(LEAST, MOST) + GRACE;
            (found.address, time)
        });
        // Renewed when half of the time has passed.
        let is_known = |address: &Ipv4Addr, time: Duration| {
            known.get(&(group, *address)).is_some_and(|until| *until > now + time / 2)
        };
        let mut unknown: Vec<_> = times.filter(|(address, time)| !is_known(address, *time)).collect();
        unknown.sort_unstable_by_key(|(address, time)| (*address, std::cmp::Reverse(*time)));
        unknown.dedup_by_key(|(address, _)| *address);
        unknown
    }

    fn learned(&self, group: usize, addresses: &[(Ipv4Addr, Duration)], earlier: Earlier) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match earlier {
            Earlier::Kept => {}
            // Replies with them permit them again.
            Earlier::Removed => known.retain(|(other, _), _| *other != group),
        }
        if known.len() + addresses.len() > KNOWN_MAX {
            known.clear();
        }
        known.extend(addresses.iter().map(|(address, time)| ((group, *address), now + *time)));
    }
}

/// Changes the gateway of one sandbox.
#[derive(Debug)]
pub(crate) struct Learner {
    leases: Arc<Leases>,
    lease: LeaseId,
    turn: Turn<()>,
    /// How many commands may run at once, for all sandboxes together.
    commands: Arc<Semaphore>,
}

impl Learner {
    pub(crate) fn new(leases: Arc<Leases>, lease: LeaseId, commands: Arc<Semaphore>) -> Self {
        Self { leases, lease, turn: Turn::default(), commands }
    }

    /// Permits the addresses for a group of names. The guard is held until that is done, so that a
    /// change of the egress comes after it.
    pub(crate) async fn learn(
        &self,
        rules: OwnedRwLockReadGuard<Arc<Rules>>,
        group: usize,
        addresses: &[Address],
    ) -> Result<(), NetworkError> {
        if rules.unknown(group, addresses).is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        // Another query may have had the same reply meanwhile.
        let unknown = rules.unknown(group, addresses);
        if unknown.is_empty() {
            return Ok(());
        }
        let command = Arc::clone(&self.commands).acquire_owned().await;
        let (leases, lease) = (Arc::clone(&self.leases), self.lease);
        let permitting = tokio::task::spawn_blocking(move || {
            let permitted = leases.permit(lease, group, &unknown);
            let permitted = permitted.map(|earlier| rules.learned(group, &unknown, earlier));
            drop((rules, command));
            permitted
        });
        let permitted = permitting.await.map_err(|error| crate::failed("permit the addresses of a name", error))?;
        tokio::time::sleep(PAUSE).await;
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8, ttl: u32) -> Address {
        Address { address: [198, 51, 100, last].into(), ttl }
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_are_permitted_for_a_bounded_time_and_again_when_half_of_it_is_over() {
        let rules = Rules::new(Policy::nothing());
        let found = rules.unknown(0, &[address(1, 0), address(2, 3600), address(3, u32::MAX), address(1, 400)]);
        let times: Vec<u64> = found.iter().map(|(_, time)| time.as_secs()).collect();
        assert_eq!(times, [460, 3660, 86_460]);
        rules.learned(0, &found, Earlier::Kept);
        assert_eq!(rules.unknown(0, &[address(1, 0), address(2, 3600)]), []);
        tokio::time::advance(Duration::from_secs(1900)).await;
        let again: Vec<_> = rules.unknown(0, &[address(1, 0), address(2, 3600), address(3, u32::MAX)]);
        assert_eq!(again.iter().map(|(address, _)| address.octets()[3]).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn addresses_that_a_full_set_had_to_give_up_are_permitted_again() {
        let rules = Rules::new(Policy::nothing());
        for (group, last) in [(0, 1), (1, 2)] {
            rules.learned(group, &rules.unknown(group, &[address(last, 3600)]), Earlier::Kept);
        }
        rules.learned(0, &rules.unknown(0, &[address(3, 3600)]), Earlier::Removed);
        let unknown = |group| {
            let found = rules.unknown(group, &[1, 2, 3].map(|last| address(last, 3600)));
            found.iter().map(|(address, _)| address.octets()[3]).collect::<Vec<_>>()
        };
        assert_eq!((unknown(0), unknown(1)), (vec![1, 2], vec![1, 3]));
    }

    #[test]
    fn private_addresses_are_never_permitted() {
        let rules = Rules::new(Policy::nothing());
        let forged = [[10, 0, 0, 1], [169, 254, 169, 254], [192, 168, 1, 1], [127, 0, 0, 1], [168, 63, 129, 16]];
        assert_eq!(rules.unknown(0, &forged.map(|address| Address { address: address.into(), ttl: 60 })), []);
    }

    #[test]
    fn what_is_known_stays_bounded() {
        let rules = Rules::new(Policy::nothing());
        for number in 0..10_000_u32 {
            rules.learned(0, &[(Ipv4Addr::from(number), LEAST)], Earlier::Kept);
        }
        assert!(rules.known.lock().unwrap().len() <= KNOWN_MAX);
    }
}
