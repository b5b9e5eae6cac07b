//! `docs/performance.md` and its plots, made from the results of a bench.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::plots::PLOTS;
use super::report::Report;
use super::rows::Row;

/// The sections of the page: parts of the bench, a title, and a sentence about what is compared.
const SECTIONS: [(&[&str], &str, &str); 9] = [
    (
        &["lifecycle"],
        "Create, exec and parked resume",
        "A parked sandbox is suspended, but still in memory. The peer is `runsc run`, `runsc exec` and `runsc restore`.",
    ),
    (
        &["wake"],
        "Wake",
        "The sandbox is only on disk. The time ends when its first exec is answered. The peer is `runsc restore` and \
         `runsc exec`. Each side finds in the page cache what its own suspend or checkpoint has left there.",
    ),
    (
        &["fork"],
        "Fork",
        "All forks have answered an exec. Memory is that of the control groups of all sandboxes, and of the process of the daemon.",
    ),
    (
        &["suspend", "reflink"],
        "Suspend",
        "A suspend is answered when the sleep image is on the disk and verified. The peer is `runsc checkpoint`.",
    ),
    (
        &["price"],
        "First writes after a wake",
        "Restored memory stays in its image until it is written, so the first write of a page costs more than with stock \
         `runsc`, which has read all memory before. The guest measures by its own clock.",
    ),
    (
        &["files", "rewind"],
        "Filesystem snapshots and rewind",
        "The source of a snapshot stands still while its sandbox writes the list and the content of its changed files.",
    ),
    (
        &["ensure"],
        "Environments",
        "A request for an environment beside the single commands that it stands for, through the same API.",
    ),
    (
        &["many", "density", "idle"],
        "Many sandboxes",
        "CPU time is that of the control groups, which contain all processes of a sandbox.",
    ),
    (
        &["zipf"],
        "Traffic",
        "Four clients send requests to sandboxes by a Zipf distribution with exponent 1.1. A client that finds no room \
         suspends the sandbox that was used longest ago. Parked sandboxes may hold a quarter of the memory that is there \
         for running ones, as on a host that has no more. \"All on disk\" is a daemon that parks none.",
    ),
];

const HEAD: &str = "\
# Performance

<!-- Made by `cargo xtask bench --write-docs`. Do not edit. -->

Dormouse compared with commands of stock `runsc`, alternating in the same run on the same machine, through the HTTP API.
Ratios are of medians. Times depend on the machine; ratios much less.
";

const UNFAVOURABLE: &str = "\
## What is unfavourable

- The first write to each part of restored memory copies it. A program that writes all of its memory after each wake gains
  nothing; the table of first writes shows what it loses.
- Memory that is not in the page cache is read when it is first used, in small parts. After a restart of the host, reading
  all of 4 GiB takes as long as the disk needs, and longer than reading it in one piece.
- On a file system without reflinks, such as ext4, an image of a resumed sandbox refers to an earlier one and takes up to
  twice its space. Damage to the earlier one is damage to all that refer to it.
- The page cache holds images, which these tables do not count as memory of forks unless they say so.
- Limits in milliseconds are noted only: another machine has other times.
";

/// Writes the page, its plots and the results below `docs`.
pub(super) fn write(report: &Report, root: &Path) -> Result<()> {
    for (path, content) in files(report)? {
        let path = root.join("docs").join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        }
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        eprintln!("bench: wrote {}", path.display());
    }
    Ok(())
}

/// Returns every file that is made from a report, with its path below `docs`.
fn files(report: &Report) -> Result<Vec<(PathBuf, String)>> {
    let mut files = vec![(PathBuf::from("performance/results.json"), report.to_json()?)];
    for plot in &PLOTS {
        if let Some(svg) = plot.draw(&report.rows) {
            files.push((PathBuf::from(format!("performance/{}.svg", plot.name)), svg));
        }
    }
    files.push((PathBuf::from("performance.md"), page(report)));
    Ok(files)
}

fn page(report: &Report) -> String {
    let mut page = HEAD.to_owned();
    let machine = &report.machine;
    let command = if machine.short { "cargo xtask bench --short" } else { "cargo xtask bench" };
    let repeat = format!(
        "To repeat it, run `{command} --write-docs` as root on an idle machine. `--only PART` measures a part, and \
         `--json FILE` keeps the results."
    );
    let _ = write!(
        page,
        "\n## Where and how\n\n\
         | | |\n|---|---|\n\
         | date, commit | {}, {} |\n\
         | machine | {} CPUs ({}), {:.0} GiB of memory, Linux {} |\n\
         | disk | {} |\n\
         | engine | `runsc` {} |\n\
         | peer | `runsc` {} |\n\n\
         {}\n",
        machine.date,
        machine.commit,
        machine.cpus,
        machine.cpu,
        machine.memory_mib as f64 / 1024.0,
        machine.kernel,
        machine.disk,
        machine.engine,
        machine.peer,
        wrapped(&repeat),
    );
    if let Some(note) = &machine.note {
        let _ = write!(page, "\n{}\n", wrapped(note));
    }
    for (parts, title, about) in SECTIONS {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| parts.contains(&row.part.as_str())).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {title}\n\n{}\n\n{}", wrapped(about), table(&rows));
        for plot in &PLOTS {
            let shown = rows.iter().any(|row| row.plotted.as_ref().is_some_and(|(name, _)| name == plot.name));
            if shown && plot.draw(&report.rows).is_some() {
                let _ = write!(page, "\n![{}](performance/{}.svg)\n", plot.title, plot.name);
            }
        }
    }
    page.push('\n');
    page.push_str(UNFAVOURABLE);
    page
}

fn table(rows: &[&Row]) -> String {
    let mut table = String::from("| what | dorm | peer | ratio | limit | |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(table, "| {} |", row.cells().join(" | "));
    }
    table
}

/// Returns the text in lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let full = lines.last().is_some_and(|line| line.len() + 1 + word.len() > 120);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_page_and_its_plots_are_those_of_the_committed_results() {
        let root = crate::setup::root().unwrap();
        let report = Report::read(&root.join("docs/performance/results.json")).unwrap();
        if std::env::var_os("DORM_UPDATE").is_some() {
            write(&report, &root).unwrap();
        }
        for (path, content) in files(&report).unwrap() {
            let path = root.join("docs").join(path);
            let written = fs::read_to_string(&path).unwrap();
            assert!(written == content, "{} is stale: DORM_UPDATE=1 writes it", path.display());
        }
    }
}
