//! Starts processes.

use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use dorm_agent_client::{AgentError, GuestString, OutputEnd, ProcessSpec, TerminalSize, Variable};
use dorm_lifecycle::SandboxSpec;
use dorm_service::{CommandInput, ServiceError, Use};
use futures_util::Stream;

use super::super::access::{Call, Person};
use super::super::connect::json::Number;
use super::super::connect::{self, Item, StreamOptions};
use super::super::fault::{Code, Failed, Fault};
use super::output::{self, Kind};
use super::wire::{Config, Pty, StartRequest};
use crate::control::show;

/// The variables that every process has here.
pub(super) const OWN_VARIABLES: [&str; 3] = ["E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"];

/// Variables with these names are those of the user, unless the sandbox has its own.
const OF_USER: [&str; 3] = ["HOME", "USER", "LOGNAME"];

/// The agent ends the process at its time limit, and then the stream ends. It ends without that
/// this much later.
const GRACE: Duration = Duration::from_secs(2);

/// Starts a process and follows it.
pub(super) async fn start(call: &Call, request: Request) -> Response {
    let limit = connect::time_limit(request.headers()).ok().flatten();
    let options = StreamOptions { grace: GRACE, ..output::OPTIONS };
    connect::server_stream(call, request, options, |asked| started(call, asked, limit)).await
}

async fn started(
    call: &Call,
    asked: StartRequest,
    limit: Option<Duration>,
) -> Result<impl Stream<Item = Item> + use<>, Failed> {
    let StartRequest { process, pty, tag, stdin } = asked;
    let config = process.ok_or_else(|| Fault::invalid("the request names no process to start"))?;
    let given = config.cwd.clone().unwrap_or_default();
    let person = {
        let (agent, _in_use) = call.agent(Use::Process).await?;
        call.person(&agent).await?
    };
    let mut spec = spec(call, &person, config)?;
    spec.terminal = pty.map(terminal).transpose()?;
    spec.label = tag;
    spec.output_end = OutputEnd::WithPipes;
    let kind = if spec.terminal.is_some() { Kind::Terminal } else { Kind::Pipes };
    let input = if stdin == Some(false) { CommandInput::Empty } else { CommandInput::Open };
    let execution = call.service.exec(call.sandbox(), spec, input, limit).await;
    let execution = execution.map_err(|error| not_started(error, &given))?;
    Ok(output::events(execution.started.pid, kind, execution))
}

fn spec(call: &Call, person: &Person, config: Config) -> Result<ProcessSpec, Fault> {
    let Config { cmd, args, envs, cwd } = config;
    let words = std::iter::once(cmd).chain(args.unwrap_or_default());
    let words = words.map(|word| GuestString::try_from(word).map_err(|error| Fault::invalid(error.to_string())));
    let mut spec = ProcessSpec::new(words.collect::<Result<_, _>>()?);
    spec.directory = Some(person.path(&cwd.unwrap_or_default())?);
    spec.user = Some(person.user.clone());
    let (template, _) = show::template_of(&call.view);
    spec.variables = variables(call.sandbox().as_str(), &template, &call.view.sandbox.spec, envs.unwrap_or_default())?;
    Ok(spec)
}

/// The variables of a process in addition to those that every process of the sandbox has.
fn variables(
    sandbox: &str,
    template: &str,
    spec: &SandboxSpec,
    own: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<Variable>, Fault> {
    let known = OWN_VARIABLES.into_iter().zip(["true", sandbox, template]);
    let of_sandbox = spec.variables.0.iter();
    let of_sandbox = of_sandbox.filter(|(name, _)| OF_USER.iter().chain(&OWN_VARIABLES).any(|known| known == name));
    let known = known.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of_sandbox = of_sandbox.map(|(name, value)| (name.clone(), value.clone()));
    let variable =
        |(name, value): (String, String)| Variable::new(name, value).map_err(|error| Fault::invalid(error.to_string()));
    known.chain(of_sandbox).chain(own).map(variable).collect()
}

/// The size of a terminal. Clients may leave it out.
pub(super) fn terminal(pty: Pty) -> Result<TerminalSize, Fault> {
    let size = pty.size.unwrap_or_default();
    let number = |what, number: Option<Number>, default: u16| match number.unwrap_or_default().0 {
        0 => Ok(default),
        number => u16::try_from(number).map_err(|_| Fault::invalid(format!("a terminal cannot have {number} {what}"))),
    };
    Ok(TerminalSize { rows: number("rows", size.rows, 24)?, columns: number("columns", size.cols, 80)? })
}

/// The error for a process that cannot be started in the directory that the client gave.
fn not_started(error: ServiceError, directory: &str) -> Failed {
    match error {
        ServiceError::Agent(AgentError::NotFound(path)) => {
            let shown = if directory.is_empty() { path.to_text() } else { directory.to_owned() };
            Fault::invalid(format!("cwd '{shown}' does not exist")).into()
        }
        ServiceError::Agent(AgentError::NotADirectory(path)) => {
            Fault::new(Code::InvalidArgument, format!("cwd '{path}' is not a directory")).into()
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use dorm_lifecycle::Digest;

    use super::*;

    fn texts(variables: &[Variable]) -> Vec<String> {
        variables.iter().map(|one| format!("{}={}", one.name().to_text(), one.value().to_text())).collect()
    }

    #[test]
    fn variables_of_a_request_win_over_those_of_the_sandbox() {
        let digest: Digest = "0".repeat(64).parse().unwrap();
        let mut spec = SandboxSpec::new(digest, None);
        spec.variables.0.insert("HOME".to_owned(), "/srv".to_owned());
        spec.variables.0.insert("OTHER".to_owned(), "1".to_owned());
        let found = variables("abc", "base", &spec, [("HOME".to_owned(), "/opt".to_owned())]).unwrap();
        assert_eq!(
            texts(&found),
            ["E2B_SANDBOX=true", "E2B_SANDBOX_ID=abc", "E2B_TEMPLATE_ID=base", "HOME=/srv", "HOME=/opt"]
        );
        assert!(variables("abc", "base", &spec, [("A=B".to_owned(), String::new())]).is_err());
        assert!(variables("abc", "base", &spec, [("A".to_owned(), "\0".to_owned())]).is_err());
    }

    #[test]
    fn a_directory_that_is_missing_is_named_as_the_client_names_it() {
        let missing = || ServiceError::Agent(AgentError::NotFound("/srv/x".try_into().unwrap()));
        let Failed::Refused(fault) = not_started(missing(), "x") else { panic!("it is an error of envd") };
        assert_eq!(fault, Fault::invalid("cwd 'x' does not exist"));
    }
}
