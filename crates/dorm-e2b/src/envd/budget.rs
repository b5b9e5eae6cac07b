//! How much one call collects from a sandbox. Root inside can replace the agent, which then may
//! announce further pages without end.

use super::fault::{Code, Fault};

/// The largest number of items.
pub(super) const ITEMS_MAX: usize = 100_000;
/// The largest number of bytes.
pub(super) const BYTES_MAX: u64 = 32 << 20;

/// The items and bytes that a call may still collect.
#[derive(Debug)]
pub(super) struct Budget {
    items: usize,
    bytes: u64,
}

/// More was collected than a call may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spent;

impl Spent {
    /// The refusal of a call that collects too much of something.
    pub(super) fn refusal(self, what: &str, next_step: &str) -> Fault {
        let mib = BYTES_MAX >> 20;
        let message = format!("{what} more than {ITEMS_MAX} entries or {mib} MiB: {next_step}");
        Fault::new(Code::FailedPrecondition, message)
    }
}

impl Budget {
    /// The budget of one call.
    pub(super) fn of_call() -> Self {
        Self { items: ITEMS_MAX, bytes: BYTES_MAX }
    }

    /// Charges items, also those that are not returned, and bytes.
    pub(super) fn charge(&mut self, items: usize, bytes: u64) -> Result<(), Spent> {
        match (self.items.checked_sub(items), self.bytes.checked_sub(bytes)) {
            (Some(items), Some(bytes)) => {
                *self = Self { items, bytes };
                Ok(())
            }
            _ => {
                *self = Self { items: 0, bytes: 0 };
                Err(Spent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_behind_its_last_item_and_its_last_byte() {
        let mut items = Budget::of_call();
        for _ in 0..ITEMS_MAX {
            items.charge(1, 0).unwrap();
        }
        assert_eq!(items.charge(1, 0), Err(Spent));
        let mut bytes = Budget::of_call();
        bytes.charge(1, BYTES_MAX - 1).unwrap();
        bytes.charge(1, 1).unwrap();
        assert_eq!(bytes.charge(0, 1), Err(Spent));
    }

    #[test]
    fn nothing_is_left_after_a_charge_that_was_too_large() {
        for (items, bytes) in [(ITEMS_MAX + 1, 0), (0, BYTES_MAX + 1), (usize::MAX, u64::MAX)] {
            let mut budget = Budget::of_call();
            assert_eq!(budget.charge(items, bytes), Err(Spent));
            assert_eq!(budget.charge(1, 0), Err(Spent));
            assert_eq!(budget.charge(0, 1), Err(Spent));
        }
    }

    #[test]
    fn the_refusal_names_the_limits_and_the_next_step() {
        let fault = Spent.refusal("'/a' has", "list it with a smaller depth");
        assert_eq!(fault.code, Code::FailedPrecondition);
        assert_eq!(fault.message, "'/a' has more than 100000 entries or 32 MiB: list it with a smaller depth");
    }
}
