//! The exit codes of the program. Scripts rely on them: codes are added, never changed.

/// Success.
pub(crate) const OK: u8 = 0;
/// Failure.
pub(crate) const FAILED: u8 = 1;
/// Usage error.
pub(crate) const USAGE: u8 = 2;
/// Not found.
pub(crate) const NOT_FOUND: u8 = 3;
/// Refused: conflicts with the current state, or is not permitted.
pub(crate) const REFUSED: u8 = 4;
/// The daemon is unreachable.
pub(crate) const NO_DAEMON: u8 = 5;
/// `serve`: ended with work under way, which the next start recovers.
pub(crate) const UNFINISHED: u8 = 6;
/// `exec`, `run` and `shell`: dorm failed before the command ended.
pub(crate) const NOT_THE_COMMAND: u8 = 125;
/// Added to the number of the signal that ended a command or this program.
pub(crate) const SIGNAL: u8 = 128;
/// The reader of the output has closed it; the code that SIGPIPE gives other programs.
pub(crate) const CLOSED_OUTPUT: u8 = 141;

/// The exit codes and environment variables as help text.
pub(crate) const HELP: &str = "\
Exit codes:
  0    success
  1    failure
  2    usage error: unknown option, invalid name, impossible limit
  3    not found
  4    refused: conflicts with the current state (name taken, sandbox terminated), or the key does not permit it
  5    daemon unreachable
  6    `serve`: ended with work under way, because --shutdown-limit passed or a second signal arrived;
       the next start recovers that work
  125  `sbx exec`, `sbx run` and `sbx shell`: dorm itself failed; any other code is the command's own,
       or 128 plus the number of the signal that ended it
  141  the reader of the output has closed it

Environment:
  DORM_SERVER  address of the daemon, as --server
  DORM_KEY     API key, instead of the one in the data directory
  DORM_DATA    data directory, as --data
  DORM_LOG     log level of `dorm serve`: error, warn, info (default), debug, or directives for single modules

Data is printed on standard output, messages on standard error. `-o json` prints the complete data as one JSON document.";
