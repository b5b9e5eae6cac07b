//! `dorm sbx service`.

use std::ffi::OsString;

use clap::Subcommand;
use dorm_api_types as wire;
use dorm_client::{Client, CommandEvent};
use jiff::Timestamp;

use super::command;
use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::cli::shown;
use crate::exit;
use crate::values;

const TITLES: [&str; 6] = ["NAME", "STATE", "HEALTH", "RESTARTS", "LAST EXIT", "AGE"];
const EVENT_TITLES: [&str; 6] = ["NUMBER", "AT", "EVENT", "PROCESS", "EXIT", "DETAIL"];

/// Options of `dorm sbx service`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceOptions {
    #[command(subcommand)]
    verb: ServiceVerb,
}

#[derive(Debug, Subcommand)]
enum ServiceVerb {
    /// Start a service: a command that is restarted when it ends
    Start(Box<StartOptions>),
    /// List services
    Ls {
        /// The sandbox's id or name
        id: String,
    },
    /// Show the events of a service
    Events {
        /// The sandbox's id or name
        id: String,
        /// The service's name
        name: String,
    },
    /// Print the output of a service, over all its restarts
    Logs {
        /// The sandbox's id or name
        id: String,
        /// The service's name
        name: String,
        /// Continue until the service is over
        #[arg(short, long)]
        follow: bool,
    },
    /// Stop a service with all its processes
    Stop {
        /// The sandbox's id or name
        id: String,
        /// The service's name
        name: String,
        /// Time to wait after SIGTERM before its processes are killed
        #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "10s")]
        grace: f64,
    },
    /// Remove a service with its output; one that is active is stopped first
    Rm {
        /// The sandbox's id or name
        id: String,
        /// The service's name
        name: String,
    },
}

/// Options of `dorm sbx service start`.
#[derive(Debug, clap::Args)]
struct StartOptions {
    /// The sandbox's id or name
    id: String,
    /// A name for the service
    name: String,
    /// When to restart the command
    #[arg(long, value_enum, value_name = "WHEN", default_value = "on-failure")]
    restart: When,
    /// How many restarts there may be within 10 minutes
    #[arg(long, value_name = "COUNT")]
    max_restarts: Option<u32>,
    /// Pause before the first restart; it doubles while the command keeps failing
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    restart_delay: Option<f64>,
    /// Check its health: http://:8080/PATH or tcp://:8080, on the loopback of the sandbox
    #[arg(long, value_name = "URL", value_parser = health)]
    health: Option<wire::HealthCheck>,
    /// Time between two health checks
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "health")]
    health_interval: Option<f64>,
    /// Time after which a health check has failed
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "health")]
    health_timeout: Option<f64>,
    /// How many health checks in a row must fail
    #[arg(long, value_name = "COUNT", requires = "health")]
    health_failures: Option<u32>,
    /// Time after a start in which failed health checks do not count
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "health")]
    health_grace: Option<f64>,
    /// An environment variable for the command
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::pair)]
    env: Vec<(String, String)>,
    /// Directory in the sandbox to start in
    #[arg(short, long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User to run as: a name, a number, or UID:GID
    #[arg(short, long)]
    user: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum When {
    /// Never
    Never,
    /// After any end but an exit with code 0, and when it is unhealthy
    OnFailure,
    /// After any end, and when it is unhealthy
    Always,
}

impl StartOptions {
    fn request(self) -> (String, wire::StartService) {
        let health = self.health.map(|check| wire::HealthCheck {
            interval_secs: self.health_interval,
            timeout_secs: self.health_timeout,
            failures: self.health_failures,
            grace_secs: self.health_grace,
            ..check
        });
        let asked = wire::StartService {
            name: self.name,
            argv: Some(self.command.iter().map(|word| wire::Text::from_bytes(word.as_encoded_bytes())).collect()),
            env: self.env.into_iter().collect(),
            cwd: self.workdir.map(wire::Text::Plain),
            user: self.user,
            restart: match self.restart {
                When::Never => wire::Restart::Never,
                When::OnFailure => wire::Restart::OnFailure,
                When::Always => wire::Restart::Always,
            },
            max_restarts: self.max_restarts,
            restart_delay_secs: self.restart_delay,
            health,
            ..wire::StartService::default()
        };
        (self.id, asked)
    }
}

/// Parses `http://:PORT/PATH` or `tcp://:PORT`.
fn health(text: &str) -> Result<wire::HealthCheck, String> {
    let wrong = || format!("'{text}' is not a health check such as http://:8080/health or tcp://:5432");
    let (rest, is_http) = match (text.strip_prefix("http://"), text.strip_prefix("tcp://")) {
        (Some(rest), _) => (rest, true),
        (None, Some(rest)) => (rest, false),
        (None, None) => return Err(wrong()),
    };
    let rest = rest.strip_prefix("localhost").or_else(|| rest.strip_prefix("127.0.0.1")).unwrap_or(rest);
    let (port, path) = match rest.find('/') {
        Some(at) if is_http => (&rest[..at], Some(rest[at..].to_owned())),
        Some(_) => return Err(wrong()),
        None => (rest, is_http.then(|| "/".to_owned())),
    };
    let port = port.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port > 0).ok_or_else(wrong)?;
    Ok(wire::HealthCheck { port, path, interval_secs: None, timeout_secs: None, failures: None, grace_secs: None })
}

/// Starts, shows and stops services.
pub(super) async fn run(client: &Client, options: ServiceOptions, format: Format) -> Done {
    match options.verb {
        ServiceVerb::Start(options) => {
            let (id, asked) = options.request();
            one(&client.start_service(&id, &asked).await?, format)?;
        }
        ServiceVerb::Ls { id } => {
            let services = client.services(&id).await?.services;
            match format {
                Format::Json => output::json(&services)?,
                Format::Table => table(&services)?,
            }
        }
        ServiceVerb::Events { id, name } => {
            let events = client.service_events(&id, &name).await?;
            match format {
                Format::Json => output::json(&events)?,
                Format::Table => output::table(&EVENT_TITLES, &events.iter().map(event_row).collect::<Vec<_>>())?,
            }
        }
        ServiceVerb::Logs { id, name, follow } => return logs(client, &id, &name, follow).await,
        ServiceVerb::Stop { id, name, grace } => {
            let asked = wire::StopService { grace_secs: Some(grace) };
            one(&client.stop_service(&id, &name, &asked).await?, format)?;
        }
        ServiceVerb::Rm { id, name } => client.remove_service(&id, &name).await?,
    }
    Ok(exit::OK)
}

fn one(service: &wire::Service, format: Format) -> Result<(), Problem> {
    match format {
        Format::Json => output::json(service),
        Format::Table => table(std::slice::from_ref(service)),
    }
}

fn table(services: &[wire::Service]) -> Result<(), Problem> {
    let now = Timestamp::now();
    let row = |service: &wire::Service| {
        vec![
            output::harmless(&service.name),
            shown::word(&service.state),
            shown::word(&service.health),
            service.restarts.to_string(),
            exit_of(service.last_exit),
            shown::age(service.started_at, now),
        ]
    };
    output::table(&TITLES, &services.iter().map(row).collect::<Vec<_>>())
}

fn event_row(event: &wire::ServiceEvent) -> Vec<String> {
    vec![
        event.number.to_string(),
        shown::moment(event.at),
        shown::word(&event.kind),
        event.process.map_or_else(shown::none, |process| process.to_string()),
        exit_of(event.exit),
        event.detail.as_deref().map_or_else(shown::none, output::harmless),
    ]
}

fn exit_of(exit: Option<wire::ExitStatus>) -> String {
    match exit {
        None => shown::none(),
        Some(wire::ExitStatus { exit_code: Some(code), .. }) => format!("code {code}"),
        Some(wire::ExitStatus { signal, .. }) => format!("signal {}", signal.unwrap_or_default()),
    }
}

async fn logs(client: &Client, id: &str, name: &str, follow: bool) -> Done {
    // So that a service that does not exist is no empty output.
    client.service(id, name).await?;
    let mut events = client.service_log(id, name, follow).await?;
    let mut printer = command::Printer::new();
    let mut lost = 0;
    while let Some(event) = events.next_if_any().await? {
        match event {
            CommandEvent::Stdout(chunk) => printer.put(command::Piece::Stdout(chunk.bytes)).await?,
            CommandEvent::Stderr(chunk) => printer.put(command::Piece::Stderr(chunk.bytes)).await?,
            CommandEvent::Lost(gap) => lost += gap.bytes,
            CommandEvent::Exited(_) => break,
            CommandEvent::Checkpoint(_) | CommandEvent::Started(_) => {}
        }
    }
    printer.end().await?;
    if lost > 0 {
        output::talk(&format!("older output is no longer kept: {}", shown::size(lost)));
    }
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::health;

    #[test]
    fn a_health_check_is_a_port_and_perhaps_a_path() {
        let parsed = |text| health(text).map(|check| (check.port, check.path));
        assert_eq!(parsed("http://:8080/health?x=1"), Ok((8080, Some("/health?x=1".to_owned()))));
        assert_eq!(parsed("http://localhost:80"), Ok((80, Some("/".to_owned()))));
        assert_eq!(parsed("tcp://:5432"), Ok((5432, None)));
        for bad in
            ["", ":80", "http://", "http://:0/", "tcp://:1/x", "https://:1/", "http://example.com:80/", "tcp://:x"]
        {
            parsed(bad).unwrap_err();
        }
    }
}
