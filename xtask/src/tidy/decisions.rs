//! Decisions are numbered without gaps, begin with their number, and are in the index.

use super::File;

const DIRECTORY: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";

pub(super) fn check(files: &[File], wrong: &mut Vec<String>) {
    let index = files.iter().find(|file| file.path == INDEX).map_or("", |file| &file.text);
    let mut expected = 1_u32;
    for file in files.iter().filter(|file| file.path != INDEX) {
        let Some(name) = file.path.strip_prefix(DIRECTORY) else { continue };
        let number = name.split_once('-').map_or("", |(number, _)| number);
        if number.len() != 4 || number.parse() != Ok(expected) {
            wrong.push(format!("{} should have the number {expected:04}", file.path));
        }
        if !file.text.starts_with(&format!("# {number}: ")) {
            wrong.push(format!("{} should begin with '# {number}: ' and its title", file.path));
        }
        if !index.contains(&format!("]({name})")) {
            wrong.push(format!("{INDEX} does not link to {name}"));
        }
        expected += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(files: &[(&str, &str)]) -> Vec<String> {
        let index = files.iter().map(|(name, _)| format!("[title]({name})\n")).collect::<String>();
        wrong_in(&index, files)
    }

    fn wrong_in(index: &str, files: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| File { path: format!("{DIRECTORY}{name}"), text: (*text).to_owned() };
        let mut files: Vec<_> = files.iter().map(file).collect();
        files.push(file(&("README.md", index)));
        let mut wrong = Vec::new();
        check(&files, &mut wrong);
        wrong
    }

    const FIRST: (&str, &str) = ("0001-a.md", "# 0001: A\n");

    #[test]
    fn a_gap_a_repeated_number_and_another_number_in_the_title_are_found() {
        assert_eq!(wrong(&[FIRST, ("0002-b.md", "# 0002: B\n")]), Vec::<String>::new());
        assert_eq!(wrong(&[FIRST, ("0003-b.md", "# 0003: B\n")]).len(), 1);
        assert_eq!(wrong(&[FIRST, ("0001-b.md", "# 0001: B\n")]).len(), 1);
        assert_eq!(wrong(&[FIRST, ("0002-b.md", "# 0003: B\n")]).len(), 1);
        assert_eq!(wrong(&[FIRST, ("notes.md", "# Notes\n")]).len(), 2);
    }

    #[test]
    fn a_decision_that_the_index_lacks_is_found() {
        assert_eq!(wrong_in("", &[FIRST]), ["docs/decisions/README.md does not link to 0001-a.md"]);
    }
}
