//! Import circles between the top-level modules of a crate.
//!
//! In a circle no module can be read, tested or moved without the others. The circles that exist
//! are listed with their size; a crate may lose members, and must not gain any.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::tidy;

/// How many modules of each crate are in circles today. A crate that is not listed has none.
const ALLOWED: &[(&str, usize)] = &[];

/// Modules and the modules of the same crate that each one uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Adds a line to `wrong` for each crate with more or fewer modules in circles than listed.
pub(super) fn check(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> Result<()> {
    let crates = root.join("crates");
    let mut uses: BTreeMap<String, Uses> = BTreeMap::new();
    for path in files {
        let Some((package, module)) = module_of(&crates, path) else { continue };
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        uses.entry(package).or_default().entry(module).or_default().extend(used(&text));
    }
    for (package, uses) in &uses {
        let allowed = ALLOWED.iter().find(|(name, _)| name == package).map_or(0, |(_, count)| *count);
        let members = in_circles(uses);
        if members.len() > allowed {
            wrong.push(format!(
                "{package} has {} modules in import circles, {allowed} are allowed: {}",
                members.len(),
                members.into_iter().collect::<Vec<_>>().join(", ")
            ));
        } else if members.len() < allowed {
            wrong.push(format!(
                "{package} has only {} modules in import circles: lower its number in xtask/src/layers/circles.rs",
                members.len()
            ));
        }
    }
    Ok(())
}

/// The crate and the top-level module of a source file; `None` for a crate's root and for tests.
fn module_of(crates: &Path, path: &Path) -> Option<(String, String)> {
    let inside = path.strip_prefix(crates).ok()?;
    let mut parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
    let package = parts.next()?;
    if parts.next()? != "src" {
        return None;
    }
    let parts: Vec<String> = parts.map(|part| part.trim_end_matches(".rs").to_owned()).collect();
    let is_test =
        |part: &String| part == "tests" || part.ends_with("_tests") || part == "properties" || part == "goldens";
    let module = parts.first()?.clone();
    let is_root = matches!(module.as_str(), "lib" | "main");
    (!is_root && !parts.iter().any(is_test)).then_some((package, module))
}

/// The names that follow `crate::` in `text`, also in a list, outside of comments and of the tests at
/// its end.
fn used(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let code = code.lines().map(tidy::code).collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            Some(list) => names.extend(first_names(list)),
            None => names.extend(first_name(rest)),
        }
    }
    names
}

/// The name with which `path` begins.
fn first_name(path: &str) -> Option<String> {
    let name: String = path.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// The names with which the paths of a list begin, up to the brace that closes it.
fn first_names(list: &str) -> Vec<String> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut names = Vec::new();
    for (at, symbol) in list.char_indices() {
        match (symbol, depth) {
            ('{', _) => depth += 1,
            (',' | '}', 0) => {
                names.extend(first_name(&list[start..at]));
                start = at + 1;
            }
            ('}', _) => depth -= 1,
            _ => {}
        }
        if symbol == '}' && start == at + 1 {
            break;
        }
    }
    names
}

/// The modules that use themselves through a chain of other modules.
fn in_circles(uses: &Uses) -> BTreeSet<&str> {
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            for next in
                uses.get(module).into_iter().flatten().filter(|next| *next != module && uses.contains_key(*next))
            {
                if seen.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    uses.keys().map(String::as_str).filter(|module| reached(module).contains(module)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(pairs: &[(&str, &[&str])]) -> Uses {
        pairs
            .iter()
            .map(|(module, used)| ((*module).to_owned(), used.iter().map(|name| (*name).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn members_of_a_circle_are_found_and_those_that_lead_to_it_are_not() {
        let all = uses(&[("a", &["b"]), ("b", &["c"]), ("c", &["b", "d"]), ("d", &[])]);
        assert_eq!(in_circles(&all), BTreeSet::from(["b", "c"]));
        assert!(in_circles(&uses(&[("a", &["a", "Error"]), ("b", &["a"])])).is_empty());
    }

    #[test]
    fn comments_and_tests_use_nothing() {
        let text = "use crate::run::Run; // crate::boot\nlet a = crate::error::chain(&e);\n#[cfg(test)]\nmod tests {\n use crate::world;\n}";
        assert_eq!(used(text), BTreeSet::from(["run".to_owned(), "error".to_owned()]));
    }

    #[test]
    fn every_name_of_a_list_is_used() {
        let text = "use crate::{\n    gate, names::{self, relay::Relay},\n    ports::Port,\n};\nuse crate::{one};\nlet a = {two};";
        let expected = ["gate", "names", "one", "ports"].map(str::to_owned);
        assert_eq!(used(text), BTreeSet::from(expected));
    }

    #[test]
    fn a_file_belongs_to_the_module_at_the_top() {
        let of = |path: &str| module_of(Path::new("/c"), &Path::new("/c").join(path)).map(|(_, module)| module);
        assert_eq!(of("dorm-net/src/names/relay.rs").as_deref(), Some("names"));
        assert_eq!(of("dorm-net/src/lib.rs"), None);
        assert_eq!(of("dorm-net/src/names/tests.rs"), None);
        assert_eq!(of("dorm-net/tests/whole.rs"), None);
    }
}
