//! The Rust SDK against real daemons: one for each area, with named cases that run one after the
//! other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod connect;
mod copies;
mod create;
mod daemon;
mod environments;
mod examples;
mod exec;
mod files;
mod images;
mod place;
mod ports;
mod processes;
mod projects;
mod search;
mod services;
mod sleep;
mod terminal;
mod volumes;

/// The number of cases of each area.
const CASES: &[usize] = &[
    connect::CASES,
    copies::CASES,
    create::CASES,
    daemon::CASES,
    environments::CASES,
    exec::CASES,
    files::CASES,
    images::CASES,
    ports::CASES,
    processes::CASES,
    projects::CASES,
    search::CASES,
    services::CASES,
    sleep::CASES,
    terminal::CASES,
    volumes::CASES,
];

/// The least number of cases that the suite of an SDK has.
const LEAST: usize = 120;

#[test]
fn the_suite_has_enough_cases() {
    let cases: usize = CASES.iter().sum();
    assert!(cases >= LEAST, "{cases} cases");
}
