//! `dorm man-pages`: a manual page for every verb, for packages. Hidden, since users have `--help`
//! and the packages.

use std::path::PathBuf;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::Arguments;
use super::problem::{Done, Problem};
use crate::exit;

/// Options of `dorm man-pages`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManPagesOptions {
    /// The directory for the pages; it is created if it does not exist
    directory: PathBuf,
}

/// Writes the pages.
pub(crate) fn run(options: &ManPagesOptions) -> Done {
    let directory = &options.directory;
    let shown = directory.display();
    std::fs::create_dir_all(directory).map_err(|error| Problem::host(format!("create '{shown}'"), &error))?;
    for (name, page) in pages().map_err(|error| Problem::host("render a manual page", &error))? {
        let path = directory.join(name);
        std::fs::write(&path, page).map_err(|error| Problem::host(format!("write '{}'", path.display()), &error))?;
    }
    Ok(exit::OK)
}

/// The name and the text of each page.
fn pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = without_help(Arguments::command());
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    if let Some((_, page)) = pages.first_mut() {
        notes().to_writer(page)?;
    }
    Ok(pages)
}

/// Removes the verb `help`, which would otherwise get a page for each verb.
fn without_help(command: Command) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let command = command.disable_help_subcommand(true);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, without_help))
}

fn collect(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    let man = Man::new(command.clone()).manual("Dormouse");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let verbs = || command.get_subcommands().filter(|verb| !verb.is_hide_set());
    if verbs().next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    pages.push((man.get_filename(), page));
    verbs().try_for_each(|verb| collect(verb, pages))
}

/// The text of [`exit::HELP`], with its lines as they are.
fn notes() -> Roff {
    let mut roff = Roff::new();
    for part in exit::HELP.split("\n\n") {
        let (title, text) = match part.split_once(":\n") {
            Some((title, text)) => (title.to_uppercase(), text),
            None => ("NOTES".to_owned(), part),
        };
        roff.control("SH", [title.as_str()]);
        roff.control("nf", []);
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_that_is_shown_has_a_page() {
        fn look(command: &Command, path: &str, names: &[String]) {
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                let path = format!("{path}-{}", verb.get_name());
                assert!(names.contains(&format!("{path}.1")), "{path} has no page: {names:?}");
                look(verb, &path, names);
            }
        }
        let names: Vec<_> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[0], "dorm.1");
        look(&Arguments::command(), "dorm", &names);
        let extra: Vec<_> = names.iter().filter(|name| name.contains("help") || name.contains("man-pages")).collect();
        assert!(extra.is_empty(), "{extra:?}");
    }

    #[test]
    fn a_page_has_its_options_and_the_first_one_the_exit_codes() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let (_, page) = pages.iter().find(|(of, _)| of == name).unwrap();
            String::from_utf8(page.clone()).unwrap()
        };
        assert!(page("dorm.1").contains(".SH \"EXIT CODES\"\n.nf\n"), "{}", page("dorm.1"));
        assert!(page("dorm.1").contains("DORM_SERVER"));
        assert!(page("dorm-sbx-create.1").contains("\\-\\-image"));
        assert!(page("dorm-serve.1").contains("DORM_MEMORY_BUDGET_MIB"));
    }
}
