//! Processes and their output.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dorm_agent_client as agent;
use dorm_agent_client::{GuestString, ProcessSpec, Variable};
use dorm_api_types as wire;

use super::{Convert, Of};
use crate::error::ApiError;
use crate::extract::{guest_path_of, guest_string, user};

/// The fields that all requests for a process have in common.
pub(crate) struct Command {
    pub(crate) argv: Option<Vec<wire::Text>>,
    pub(crate) shell: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<wire::Text>,
    pub(crate) user: Option<String>,
}

/// A process with those fields and no input.
pub(crate) fn command(asked: Command) -> Result<ProcessSpec, ApiError> {
    let arguments = match (asked.argv, asked.shell) {
        (Some(argv), None) if !argv.is_empty() => {
            argv.iter().map(|text| guest_string("argv", text)).collect::<Result<_, _>>()?
        }
        (None, Some(line)) => shell(&line)?,
        _ => {
            let message = "give exactly one of argv, which must not be empty, and shell";
            return Err(ApiError::invalid(message, "argv is a list of strings, shell is one command line"));
        }
    };
    let mut spec = ProcessSpec::new(arguments);
    spec.variables = asked.env.into_iter().map(variable).collect::<Result<_, _>>()?;
    spec.directory = asked.cwd.map(|path| guest_path_of("cwd", &path)).transpose()?;
    spec.user = asked.user.map(|text| user(&text)).transpose()?;
    Ok(spec)
}

/// The arguments that run a command line in the shell.
pub(crate) fn shell(line: &str) -> Result<Vec<GuestString>, ApiError> {
    ["/bin/sh", "-c", line].into_iter().map(|text| guest_string("shell", &wire::Text::Plain(text.to_owned()))).collect()
}

fn variable((name, value): (String, String)) -> Result<Variable, ApiError> {
    Variable::new(name, value).map_err(|error| ApiError::invalid(format!("env: {error}"), ""))
}

/// A background process, apart from its time limit.
pub(crate) fn process_spec(asked: wire::StartProcess) -> Result<ProcessSpec, ApiError> {
    let wire::StartProcess { argv, shell, env, cwd, user, stdin, terminal, label, output_kept_bytes, .. } = asked;
    let mut spec = command(Command { argv, shell, env, cwd, user })?;
    spec.stdin = match stdin {
        wire::Stdin::Empty => agent::Stdin::Empty,
        wire::Stdin::Pipe => agent::Stdin::Pipe,
    };
    spec.terminal = terminal.map(Convert::convert);
    spec.label = label;
    spec.output_kept = output_kept_bytes.unwrap_or(spec.output_kept);
    Ok(spec)
}

/// How many times as long as the bytes a text may be in JSON.
const ESCAPED_TIMES: usize = 3;

/// The bytes as text if they are UTF-8, otherwise as base64. Also as base64 if they are hardly
/// anything but control characters, each of which takes six bytes in JSON.
pub(crate) fn data(bytes: Vec<u8>) -> (String, wire::Encoding) {
    let as_base64 = |bytes: &[u8]| (STANDARD.encode(bytes), wire::Encoding::Base64);
    if escaped_bytes(&bytes) > ESCAPED_TIMES * bytes.len() {
        return as_base64(&bytes);
    }
    String::from_utf8(bytes).map_or_else(|error| as_base64(error.as_bytes()), |text| (text, wire::Encoding::Utf8))
}

/// How many bytes a text takes in a JSON string.
pub(crate) fn escaped_bytes(text: &[u8]) -> usize {
    let escaped = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.iter().map(escaped).sum()
}

/// The most bytes that [`data`] of `bytes` bytes, which as text would take `escaped`, takes in
/// JSON.
pub(crate) fn json_bytes_most(bytes: usize, escaped: usize) -> usize {
    let base64 = bytes.div_ceil(3) * 4;
    base64.max(escaped.min(ESCAPED_TIMES * bytes))
}

impl Of<wire::TerminalSize> for agent::TerminalSize {
    fn of(size: wire::TerminalSize) -> Self {
        Self { rows: size.rows, columns: size.cols }
    }
}

impl Of<agent::TerminalSize> for wire::TerminalSize {
    fn of(size: agent::TerminalSize) -> Self {
        Self { rows: size.rows, cols: size.columns }
    }
}

impl Of<agent::ProcessStarted> for wire::ProcessStarted {
    fn of(started: agent::ProcessStarted) -> Self {
        Self { process: started.process, pid: started.pid }
    }
}

impl Of<agent::ExitStatus> for wire::ExitStatus {
    fn of(status: agent::ExitStatus) -> Self {
        let (exit_code, signal) = match status {
            agent::ExitStatus::Code(code) => (Some(code), None),
            agent::ExitStatus::Signal(signal) => (None, Some(signal)),
        };
        Self { exit_code, signal, timed_out: false }
    }
}

impl Of<agent::OutputKind> for wire::OutputStream {
    fn of(kind: agent::OutputKind) -> Self {
        match kind {
            agent::OutputKind::Stdout => Self::Stdout,
            agent::OutputKind::Stderr => Self::Stderr,
        }
    }
}

impl Of<agent::ProcessStatus> for wire::Process {
    fn of(status: agent::ProcessStatus) -> Self {
        let text = |text: &GuestString| wire::Text::from_bytes(text.as_bytes());
        Self {
            process: status.process,
            pid: status.pid,
            argv: status.arguments.iter().map(text).collect(),
            cwd: wire::Text::from_bytes(status.directory.as_bytes()),
            env: status.variables.iter().map(|variable| text(variable.name())).collect(),
            user: status.user.map(|user| user.to_string()),
            label: status.label,
            terminal: status.terminal.map(Convert::convert),
            started_at: wire::Time::from_millis(status.started_unix_ms),
            stdout_bytes: status.written.stdout,
            stderr_bytes: status.written.stderr,
            exit: status.exit.map(|exit| wire::ExitStatus { timed_out: status.timed_out, ..exit.convert() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_output_takes_much_more_room_in_json_than_it_has_bytes() {
        let all: Vec<u8> = (0..=127).collect();
        let cases: [(&[u8], wire::Encoding); 7] = [
            (b"", wire::Encoding::Utf8),
            (&all, wire::Encoding::Utf8),
            (b"[\"\",\"\",\"\"]\r\n\t\\", wire::Encoding::Utf8),
            (b"\x1b[31mred\x1b[0m", wire::Encoding::Utf8),
            ("köln 🦀".as_bytes(), wire::Encoding::Utf8),
            (&[0; 1000], wire::Encoding::Base64),
            (b"\xff\xfe", wire::Encoding::Base64),
        ];
        for (bytes, expected) in cases {
            let (text, encoding) = data(bytes.to_vec());
            assert_eq!(encoding, expected, "{text}");
            match encoding {
                wire::Encoding::Utf8 => assert_eq!(text.as_bytes(), bytes),
                wire::Encoding::Base64 => assert_eq!(STANDARD.decode(&text).unwrap(), bytes),
            }
            // Without the quotes around it.
            let length = serde_json::to_string(&text).unwrap().len() - 2;
            assert!(length <= json_bytes_most(bytes.len(), escaped_bytes(bytes)), "{text}: {length}");
            if encoding == wire::Encoding::Utf8 {
                assert_eq!(length, escaped_bytes(bytes), "{text}");
            }
        }
    }
}
