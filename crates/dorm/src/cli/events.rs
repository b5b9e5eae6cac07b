//! `dorm events`: prints events, and follows new ones.

use dorm_api_types as wire;
use dorm_client::Client;

use super::connection::Connection;
use super::output::{self, Format, harmless};
use super::problem::{Done, Problem};
use super::shown;
use crate::exit;

/// Options of `dorm events`.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsOptions {
    #[command(flatten)]
    connection: Connection,
    /// Continue with new events as they happen; with `-o json` each event is one line
    #[arg(short, long)]
    follow: bool,
    /// Only events of this sandbox, by id, or by name until it is terminated
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Only events with a higher number
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Only this many of the newest events
    #[arg(long, value_name = "COUNT", default_value_t = 1000, conflicts_with_all = ["after", "all", "follow"],
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    /// All events on record
    #[arg(long, conflicts_with = "after")]
    all: bool,
}

const TITLES: [&str; 7] = ["NUMBER", "AT", "SANDBOX", "EVENT", "GENERATION", "BY", "DETAIL"];

/// Prints events.
pub(crate) async fn run(options: EventsOptions) -> Done {
    let client = options.connection.client()?;
    if options.follow {
        return follow(&client, &options).await;
    }
    let sandbox = options.sandbox.as_deref();
    if options.after.is_none() && !options.all {
        return show(&options, &client.events(sandbox, 0, Some(options.limit)).await?.events);
    }
    let mut events = Vec::new();
    let mut after = options.after.unwrap_or(0);
    loop {
        let page = client.events(sandbox, after, None).await?;
        if page.events.is_empty() {
            return show(&options, &events);
        }
        after = page.next;
        events.extend(page.events);
    }
}

fn show(options: &EventsOptions, events: &[wire::Event]) -> Done {
    match options.connection.output {
        Format::Json => output::json(&events)?,
        Format::Table => output::table(&TITLES, &events.iter().map(|event| row(event).to_vec()).collect::<Vec<_>>())?,
    }
    Ok(exit::OK)
}

async fn follow(client: &Client, options: &EventsOptions) -> Done {
    let mut last = options.after.unwrap_or(0);
    let mut stream = client.follow_events(options.sandbox.as_deref(), last).await?;
    if options.connection.output == Format::Table {
        output::write(line(&TITLES.map(str::to_owned)).as_bytes())?;
    }
    while let Some(event) = stream.next().await? {
        if event.kind != "event" {
            continue;
        }
        let event: wire::Event = stream.parse(&event)?;
        last = event.number;
        match options.connection.output {
            Format::Json => output::json_line(&event)?,
            Format::Table => output::write(line(&row(&event)).as_bytes())?,
        }
    }
    let next = format!("when it runs again, continue with `dorm events -f --after {last}`");
    Err(Problem::failed("the daemon has stopped, which ended the event stream", next))
}

fn row(event: &wire::Event) -> [String; 7] {
    [
        event.number.to_string(),
        shown::moment(event.at),
        event.sandbox.clone(),
        event.kind.clone(),
        event.generation.to_string(),
        shown::by(&event.initiator, event.caller.as_ref()),
        detail(event),
    ]
}

fn detail(event: &wire::Event) -> String {
    let mut parts: Vec<_> = event.detail.iter().cloned().collect();
    parts.extend(event.took_ms.map(|millis| format!("took {millis} ms")));
    parts.extend(event.bytes.map(|bytes| format!("{} written", shown::size(bytes))));
    parts.join("; ")
}

/// Returns a row with fixed column widths, since later rows are not known yet.
fn line(cells: &[String; 7]) -> String {
    let [number, at, sandbox, kind, generation, by, detail] = cells;
    let text = format!("{number:<6}  {at:<20}  {sandbox:<20}  {kind:<17}  {generation:<10}  {by:<17}  {detail}");
    format!("{}\n", harmless(text.trim_end()).replace('\n', " "))
}
