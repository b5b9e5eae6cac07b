//! Snapshots taken automatically by a sandbox's policy: when the next one is due, and which earlier
//! ones are deleted.
//!
//! The retention policy uses intervals that are counted from the epoch, not from a snapshot: what
//! it keeps of a past interval does not depend on when or how often it is evaluated.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::saved::SnapshotKind;
use crate::spec_error::SpecError;
use crate::time::Timestamp;

/// The shortest interval between two snapshots.
const LEAST: Duration = Duration::from_secs(10);
/// The longest interval between two snapshots.
const MOST: Duration = Duration::from_secs(365 * 86_400);
/// The maximum count of one rule, and the maximum number of rules.
const COUNT_MAX: u32 = 1000;
const RULES_MAX: usize = 8;

/// The policy for snapshots that are taken automatically while a sandbox runs and is used.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Checkpoints {
    /// The interval. 10 s to 365 days.
    pub every: Duration,
    /// The kind of the snapshots.
    pub kind: SnapshotKind,
    /// The retention policy for them.
    pub keep: RetentionPolicy,
}

impl Checkpoints {
    /// Rejects an interval that is out of range.
    ///
    /// # Errors
    ///
    /// [`SpecError::Resource`].
    pub fn check(&self) -> Result<(), SpecError> {
        if (LEAST..=MOST).contains(&self.every) {
            return Ok(());
        }
        let (asked, least, most) = (self.every.as_secs(), LEAST.as_secs(), MOST.as_secs());
        Err(SpecError::Resource { what: "every_secs of checkpoints", asked, least, most })
    }
}

/// The known attempts of a sandbox's policy to take snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// When the last attempt started, whatever its result.
    pub tried: Option<Timestamp>,
    /// When the last attempt that completed started; `None` if there was none, or if it is not
    /// known whether the sandbox was used since.
    pub complete: Option<Timestamp>,
}

impl Taken {
    /// Returns whether a sandbox that was last used at `last_active` may have changed since the
    /// last complete snapshot.
    pub fn is_behind(self, last_active: Timestamp) -> bool {
        self.complete.is_none_or(|complete| last_active >= complete)
    }
}

/// One rule of a retention policy: keep the newest snapshot of each of the last `count` intervals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RetentionRule {
    /// The number of intervals.
    pub count: u32,
    /// The length of each interval.
    pub length: Duration,
}

/// A retention policy: it keeps the newest snapshots, and fewer the older they are. Written as
/// `3,24x1h,7x1d`: the newest three, one for each of the last 24 hours, one for each of the last 7
/// days.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RetentionPolicy {
    newest: u32,
    rules: Vec<RetentionRule>,
}

/// Why a text is not a valid retention policy.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RetentionPolicyError {
    /// A part is neither a count nor a rule.
    #[error("'{0}' is neither a count, such as 3, nor a rule, such as 24x1h (units s, m, h, d)")]
    Part(String),
    /// A count is out of range.
    #[error("the count in '{0}' is out of range: it must be between 1 and {COUNT_MAX}")]
    Count(String),
    /// An interval is out of range.
    #[error("the interval in '{0}' is out of range: it must be between 10s and 365d")]
    Length(String),
    /// The number of newest snapshots is given twice.
    #[error("'{0}' gives the number of newest snapshots a second time")]
    Twice(String),
    /// There are too many rules.
    #[error("{0} rules are too many: the maximum is {RULES_MAX}")]
    Steps(usize),
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        let rule = |count, seconds| RetentionRule { count, length: Duration::from_secs(seconds) };
        Self { newest: 3, rules: vec![rule(24, 3600), rule(7, 86_400)] }
    }
}

impl RetentionPolicy {
    /// Returns the maximum number of snapshots that it keeps.
    pub fn total(&self) -> usize {
        let counts = self.rules.iter().map(|rule| rule.count).chain([self.newest]);
        counts.map(|count| count as usize).sum()
    }

    /// Returns which of `taken` are deleted at `now`. The newest is always kept.
    pub fn spent<K: Ord + Clone>(&self, taken: &[(Timestamp, K)], now: Timestamp) -> Vec<K> {
        let mut order: Vec<_> = taken.iter().collect();
        order.sort_by(|a, b| b.cmp(a));
        let mut kept: BTreeSet<usize> = (0..self.newest.max(1) as usize).collect();
        for RetentionRule { count, length } in &self.rules {
            let interval = |at: Timestamp| u128::from(at.as_millis()) / length.as_millis().max(1);
            let oldest = interval(now).saturating_sub(u128::from(count.saturating_sub(1)));
            let mut last = None;
            let firsts =
                order.iter().enumerate().filter(|(_, (at, _))| last.replace(interval(*at)) != Some(interval(*at)));
            let found = firsts.take_while(|(_, (at, _))| interval(*at) >= oldest).take(*count as usize);
            kept.extend(found.map(|(index, _)| index));
        }
        let spent = order.iter().enumerate().filter(|(index, _)| !kept.contains(index));
        spent.map(|(_, (_, key))| key.clone()).collect()
    }
}

impl FromStr for RetentionPolicy {
    type Err = RetentionPolicyError;

    fn from_str(text: &str) -> Result<Self, RetentionPolicyError> {
        let mut policy = Self { newest: 0, rules: Vec::new() };
        for part in text.split(',').map(str::trim) {
            let number = |digits: &str| -> Result<u64, RetentionPolicyError> {
                let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                if plain {
                    Ok(digits.parse().unwrap_or(u64::MAX))
                } else {
                    Err(RetentionPolicyError::Part(part.to_owned()))
                }
            };
            let counted = |digits: &str| {
                let count = u32::try_from(number(digits)?).unwrap_or(u32::MAX);
                if (1..=COUNT_MAX).contains(&count) {
                    Ok(count)
                } else {
                    Err(RetentionPolicyError::Count(part.to_owned()))
                }
            };
            match part.split_once('x') {
                None if policy.newest > 0 => return Err(RetentionPolicyError::Twice(part.to_owned())),
                None => policy.newest = counted(part)?,
                Some((count, length)) => {
                    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((length.strip_suffix(unit)?, seconds)));
                    let (digits, seconds) = unit.ok_or_else(|| RetentionPolicyError::Part(part.to_owned()))?;
                    let length = Duration::from_secs(number(digits)?.saturating_mul(*seconds));
                    if !(LEAST..=MOST).contains(&length) {
                        return Err(RetentionPolicyError::Length(part.to_owned()));
                    }
                    policy.rules.push(RetentionRule { count: counted(count)?, length });
                }
            }
        }
        match policy.rules.len() {
            steps if steps > RULES_MAX => Err(RetentionPolicyError::Steps(steps)),
            _ => Ok(policy),
        }
    }
}

const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

impl fmt::Display for RetentionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newest = (self.newest > 0).then(|| self.newest.to_string());
        let rules = self.rules.iter().map(|RetentionRule { count, length }| {
            let seconds = length.as_secs();
            let (unit, of) = UNITS.into_iter().find(|(_, of)| seconds.is_multiple_of(*of)).unwrap_or(("s", 1));
            format!("{count}x{}{unit}", seconds / of)
        });
        f.write_str(&newest.into_iter().chain(rules).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests;
