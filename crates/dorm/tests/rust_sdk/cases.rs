//! Named cases of one area. One that fails is named, and the others run all the same.

use std::panic::AssertUnwindSafe;

use anyhow::{Context as _, Result, anyhow};
use dorm_client::types::{Event, State};
use dorm_client::{ClientError, CommandEvent, CommandStream, Dormouse, Sandbox};
use futures_util::FutureExt as _;

use crate::place::{PATIENCE, Place};

/// The cases of an area, and their daemon.
pub(crate) struct Cases {
    area: &'static str,
    place: Place,
    ran: usize,
    failed: Vec<String>,
}

impl Cases {
    pub(crate) fn new(area: &'static str) -> Self {
        Self::at(area, Place::new())
    }

    /// The cases of an area that needs a daemon of its own kind.
    pub(crate) fn at(area: &'static str, place: Place) -> Self {
        Self { area, place, ran: 0, failed: Vec::new() }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The daemon, as a program with its key uses it.
    pub(crate) fn dormouse(&self) -> Dormouse {
        self.place.dormouse()
    }

    /// Runs a case, and notes it if it fails or takes too long.
    pub(crate) async fn case(&mut self, name: &str, case: impl Future<Output = Result<()>>) {
        self.ran += 1;
        let ended = match tokio::time::timeout(PATIENCE, AssertUnwindSafe(case).catch_unwind()).await {
            Ok(Ok(result)) => result,
            // The message of a panic is printed already.
            Ok(Err(_)) => Err(anyhow!("it panicked")),
            Err(_) => Err(anyhow!("it did not end")),
        };
        if let Err(error) = ended {
            eprintln!("{}: {name}: {error:?}", self.area);
            self.failed.push(name.to_owned());
        }
    }

    /// Ends the daemon, and fails if a case has failed.
    pub(crate) async fn end(self) {
        let Self { area, place, ran, failed } = self;
        println!("{area}: {} of {ran} cases passed", ran - failed.len());
        if failed.is_empty() {
            place.end().await;
        }
        assert!(failed.is_empty(), "{area}: these cases failed: {failed:#?}");
    }
}

/// Lists the cases of an area, in their order: counts them in `CASES`, and runs them in `run`.
macro_rules! area {
    ($($case:ident),+ $(,)?) => {
        /// The number of cases.
        pub(crate) const CASES: usize = [$(stringify!($case)),+].len();

        async fn run(cases: &mut Cases, on: &On) {
            $(cases.case(stringify!($case), $case(on)).await;)+
        }
    };
}

pub(crate) use area;

/// The error of a result that is one.
pub(crate) fn error_of<T>(result: std::result::Result<T, ClientError>) -> ClientError {
    match result {
        Ok(_) => panic!("it succeeded"),
        Err(error) => error,
    }
}

/// The code of a result that is an error.
pub(crate) fn code_of<T>(result: std::result::Result<T, ClientError>) -> String {
    error_of(result).code().to_owned()
}

/// Reads a stream up to the first output on standard output that ends with this text, and returns
/// it.
pub(crate) async fn read_until(stream: &mut CommandStream, end: &str) -> Result<String> {
    let mut text = String::new();
    while !text.ends_with(end) {
        match stream.next().await?.with_context(|| format!("the stream ended after {text:?}"))? {
            CommandEvent::Stdout(chunk) => text.push_str(&String::from_utf8(chunk.bytes)?),
            CommandEvent::Exited(status) => return Err(anyhow!("it ended with {status:?} after {text:?}")),
            _ => {}
        }
    }
    Ok(text)
}

/// Asks until something is so.
pub(crate) async fn eventually<F>(what: &str, condition: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    dorm_testing::until(PATIENCE, what, condition).await
}

/// Waits until a sandbox is in a state.
pub(crate) async fn becomes(sandbox: &Sandbox, state: State) -> Result<()> {
    eventually("the state", || async { Ok(sandbox.state().await? == state) }).await
}

/// The kinds of events.
pub(crate) fn kinds(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}
