//! What the program's exit code says. Scripts rely on it: meanings are added, never changed.

/// It is done.
pub(crate) const OK: u8 = 0;
/// It was tried and did not work.
pub(crate) const FAILED: u8 = 1;
/// It cannot be meant like this.
pub(crate) const USAGE: u8 = 2;
/// What it names is not there.
pub(crate) const NOT_FOUND: u8 = 3;
/// It does not fit what is there now, or is not allowed.
pub(crate) const REFUSED: u8 = 4;
/// No daemon could be reached.
pub(crate) const NO_DAEMON: u8 = 5;
/// `serve`: it has ended with work under way, which the next start finds.
pub(crate) const UNFINISHED: u8 = 6;
/// `exec`, `run` and `shell`: the command did not get to run to its end under our eyes.
pub(crate) const NOT_THE_COMMAND: u8 = 125;
/// Added to the number of the signal that ended a command, or this program.
pub(crate) const SIGNAL: u8 = 128;
/// Nobody reads the output any more; what SIGPIPE gives other programs.
pub(crate) const CLOSED_OUTPUT: u8 = 141;

/// The same for people.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done
  1    tried, and it did not work
  2    it cannot be meant like this: unknown option, illegal name, impossible limit
  3    what it names is not there
  4    it does not fit what is there now (a name is taken, a sandbox is over), or the key is wrong
  5    no daemon could be reached
  6    `serve`: it has ended with work under way, since --shutdown-limit has passed or a second signal has come;
       the next start finds that work
  125  `sbx exec`, `sbx run` and `sbx shell`: dorm itself failed; any other code is the command's own,
       128 and the number of the signal that ended it
  141  nobody reads the output any more

Environment:
  DORM_SERVER  the daemon's address, as --server
  DORM_KEY     its key, instead of the one in the data directory
  DORM_DATA    the data directory, as --data
  DORM_LOG     what `dorm serve` logs: error, warn, info (default), debug, or rules for parts of it

Data goes to standard output, talk to standard error. `-o json` gives everything there is to know as one JSON document.";
