//! Import circles between the top-level modules of a crate.
//!
//! In a circle no module can be read, tested or moved without the others. A module uses another one
//! by a path from the root of the crate, however that is written: `crate::`, enough `super::`, or a
//! name that the root re-exports. The circles that exist are listed with their size; a crate may
//! lose members, and must not gain any.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use paths::{imports, used};

/// How many modules of each crate are in circles today. A crate that is not listed has none.
const ALLOWED: &[(&str, usize)] = &[];

/// Modules and the modules of the same crate that each one uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// A crate as its files describe it.
#[derive(Default)]
struct Package {
    /// The names of the crate's root that each module uses.
    uses: Uses,
    /// The first segment of what each name stands for that the root imports or re-exports.
    imports: BTreeMap<String, String>,
}

impl Package {
    fn read(&mut self, file: SourceFile, text: &str) {
        match file {
            SourceFile::Root => self.imports.extend(imports(text)),
            SourceFile::Module { top, depth } => self.uses.entry(top).or_default().extend(used(text, depth)),
        }
    }

    /// Returns the modules that each module uses, with what it uses by a name of the root.
    fn resolved(&self) -> Uses {
        let modules = |name: &String| match name.as_str() {
            "*" => self.uses.keys().cloned().collect(),
            _ if self.uses.contains_key(name) => vec![name.clone()],
            _ => self.imports.get(name).cloned().into_iter().collect(),
        };
        self.uses.iter().map(|(module, names)| (module.clone(), names.iter().flat_map(modules).collect())).collect()
    }
}

/// Adds a line to `wrong` for each crate with more or fewer modules in circles than listed.
pub(super) fn check(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> Result<()> {
    let (crates, sdks) = (root.join("crates"), root.join("sdk"));
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for path in files {
        let Some((package, file)) = source_file(&crates, path).or_else(|| source_file(&sdks, path)) else { continue };
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        packages.entry(package).or_default().read(file, &text);
    }
    for (package, found) in &packages {
        let uses = found.resolved();
        let allowed = ALLOWED.iter().find(|(name, _)| name == package).map_or(0, |(_, count)| *count);
        let members = in_circles(&uses);
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

/// The part of a crate that a source file is.
#[derive(PartialEq, Eq, Debug)]
enum SourceFile {
    /// `lib.rs` or `main.rs`.
    Root,
    /// A file of the top-level module `top`, `depth` modules below the root.
    Module { top: String, depth: usize },
}

/// The crate of a source file, and the part of it that the file is; `None` for tests.
fn source_file(crates: &Path, path: &Path) -> Option<(String, SourceFile)> {
    let inside = path.strip_prefix(crates).ok()?;
    let mut parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
    let package = parts.next()?;
    if parts.next()? != "src" {
        return None;
    }
    let parts: Vec<String> = parts.map(|part| part.trim_end_matches(".rs").to_owned()).collect();
    let is_test =
        |part: &String| part == "tests" || part.ends_with("_tests") || part == "properties" || part == "goldens";
    if parts.iter().any(is_test) {
        return None;
    }
    let top = parts.first()?.clone();
    let file = match top.as_str() {
        "lib" | "main" => SourceFile::Root,
        _ => SourceFile::Module { top, depth: parts.len() },
    };
    Some((package, file))
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
    fn a_circle_through_names_that_the_root_re_exports_is_found() {
        let file = |top: &str| SourceFile::Module { top: top.to_owned(), depth: 1 };
        let mut package = Package::default();
        package.read(SourceFile::Root, "mod a;\nmod b;\npub use a::{One, other::Two as Second};\npub(crate) use b::Three;\npub use dorm_store::Code;");
        package.read(file("a"), "use crate::Three;");
        package.read(file("b"), "use crate::{Code, Error};\nuse super::Second;");
        let resolved = uses(&[("a", &["b"]), ("b", &["a", "dorm_store"])]);
        assert_eq!(package.resolved(), resolved);
        assert_eq!(in_circles(&resolved), BTreeSet::from(["a", "b"]));
    }

    #[test]
    fn everything_of_the_root_is_a_use_of_every_module() {
        let file = |top: &str| SourceFile::Module { top: top.to_owned(), depth: 1 };
        let mut package = Package::default();
        package.read(file("a"), "use crate::*;");
        package.read(file("b"), "");
        assert_eq!(package.resolved(), uses(&[("a", &["a", "b"]), ("b", &[])]));
    }

    #[test]
    fn a_file_belongs_to_the_module_at_the_top() {
        let of = |path: &str| source_file(Path::new("/c"), &Path::new("/c").join(path)).map(|(_, file)| file);
        let names = SourceFile::Module { top: "names".to_owned(), depth: 2 };
        assert_eq!(of("dorm-net/src/names/relay.rs"), Some(names));
        assert_eq!(of("dorm-net/src/lib.rs"), Some(SourceFile::Root));
        assert_eq!(of("dorm-net/src/names/tests.rs"), None);
        assert_eq!(of("dorm-net/tests/whole.rs"), None);
    }
}
