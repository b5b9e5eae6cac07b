//! The simulation runs that every test run executes: ten thousand fixed ones, and every seed that
//! has ever failed. They are split so that two processors share them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;

use dorm_sim::{Echo, Guests, Simulator, StoreKind};

fn execute(seeds: Range<u64>, store: StoreKind, guests: Guests) {
    let simulator = Simulator::new().unwrap().with(guests);
    for seed in seeds {
        let outcome = simulator.run(seed, store, Echo::Off).unwrap();
        if let Some(report) = outcome.report(store) {
            panic!("{report}");
        }
    }
}

#[test]
fn nothing_is_wrong_in_simulations_1_to_2500() {
    execute(1..2501, StoreKind::Memory, Guests::Modest);
}

#[test]
fn nothing_is_wrong_in_simulations_2501_to_5000() {
    execute(2501..5001, StoreKind::Memory, Guests::Modest);
}

#[test]
fn nothing_is_wrong_in_simulations_5001_to_7500_with_guests_under_memory_pressure() {
    execute(5001..7501, StoreKind::Memory, Guests::MemoryPressure);
}

#[test]
fn nothing_is_wrong_in_simulations_7501_to_9700_with_guests_under_memory_pressure() {
    execute(7501..9701, StoreKind::Memory, Guests::MemoryPressure);
}

#[test]
fn nothing_is_wrong_in_simulations_9701_to_9850_with_sqlite() {
    execute(9701..9851, StoreKind::Sqlite, Guests::Modest);
}

#[test]
fn nothing_is_wrong_in_simulations_9851_to_10000_with_sqlite_and_guests_under_memory_pressure() {
    execute(9851..10_001, StoreKind::Sqlite, Guests::MemoryPressure);
}

#[test]
fn nothing_is_wrong_in_simulations_that_have_failed() {
    let mut seeds = Vec::new();
    for line in include_str!("../seeds.txt").lines() {
        let text = line.split('#').next().unwrap().trim();
        if !text.is_empty() {
            seeds.push(text.parse::<u64>().unwrap());
        }
    }
    assert!(!seeds.is_empty());
    for seed in seeds {
        for guests in [Guests::Modest, Guests::MemoryPressure] {
            execute(seed..seed + 1, StoreKind::Memory, guests);
            execute(seed..seed + 1, StoreKind::Sqlite, guests);
        }
    }
}

#[test]
fn the_same_seed_is_the_same_simulation_to_the_last_line() {
    let (first, second) = (Simulator::new().unwrap(), Simulator::new().unwrap());
    for seed in 20_000..20_200 {
        let told = first.run(seed, StoreKind::Memory, Echo::Off).unwrap();
        let again = second.run(seed, StoreKind::Memory, Echo::Off).unwrap();
        assert_eq!((told.hash, told.lines), (again.hash, again.lines), "seed {seed}");
    }
    for seed in 20_000..20_020 {
        let told = first.run(seed, StoreKind::Sqlite, Echo::Off).unwrap();
        let again = second.run(seed, StoreKind::Sqlite, Echo::Off).unwrap();
        assert_eq!((told.hash, told.lines), (again.hash, again.lines), "seed {seed} with SQLite");
    }
}
