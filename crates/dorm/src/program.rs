//! Finds programs, such as the `runsc` to use.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns the absolute path of a program. A name without a path is looked up in `PATH`, as a shell
/// does. If it is not found, the name itself is returned, so that the error of executing it names
/// it.
pub(crate) fn find(program: &Path) -> PathBuf {
    find_in(program, &std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(program: &Path, path: &std::ffi::OsStr) -> PathBuf {
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
    }
    let mut found = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    found
        .find_map(|directory| Some(directory.join(program)).filter(|path| is_program(path)))
        .unwrap_or_else(|| program.to_owned())
}

/// The name of our own build of gVisor.
const OURS: &str = "dorm-runsc";

/// The `--runsc` of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Runsc {
    /// Our own build if it is installed and works here, or else `runsc` on the PATH.
    Auto,
    /// This program and no other.
    Program(PathBuf),
}

impl std::str::FromStr for Runsc {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == "auto" { Self::Auto } else { Self::Program(text.into()) })
    }
}

impl Runsc {
    /// Returns the programs to try, the preferred one first.
    pub(crate) fn programs(&self) -> Vec<PathBuf> {
        match self {
            Self::Auto => {
                let mut programs = ours(std::env::current_exe().ok().as_deref());
                programs.push(find(Path::new("runsc")));
                programs
            }
            Self::Program(program) => vec![find(program)],
        }
    }
}

/// Returns our own build beside the program `dorm`, as in the archive and after a build, or where
/// the Debian package installs it.
fn ours(dorm: Option<&Path>) -> Vec<PathBuf> {
    let Some(directory) = dorm.and_then(Path::parent) else { return Vec::new() };
    let mut places = vec![directory.join(OURS)];
    places.extend(directory.parent().map(|above| above.join("libexec/dormouse").join(OURS)));
    places.retain(|place| is_program(place));
    places.truncate(1);
    places
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_build_is_beside_dorm_or_in_libexec() {
        let directory = tempfile::tempdir().unwrap();
        let [bin, libexec] = ["bin", "libexec/dormouse"].map(|name| directory.path().join(name));
        let dorm = bin.join("dorm");
        for place in [&bin, &libexec] {
            std::fs::create_dir_all(place).unwrap();
        }
        assert!(ours(Some(&dorm)).is_empty());
        for place in [&libexec, &bin] {
            let program = place.join(OURS);
            std::fs::write(&program, "").unwrap();
            assert!(!ours(Some(&dorm)).contains(&program), "it cannot be executed");
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(ours(Some(&dorm)), [program]);
        }
        assert!(ours(None).is_empty());
    }

    #[test]
    fn auto_ends_with_the_stock_program_and_a_path_is_alone() {
        let auto = "auto".parse::<Runsc>().unwrap();
        assert_eq!(auto, Runsc::Auto);
        assert!(auto.programs().last().unwrap().ends_with("runsc"));
        assert_eq!("/opt/runsc".parse::<Runsc>().unwrap().programs(), [PathBuf::from("/opt/runsc")]);
    }

    #[test]
    fn a_bare_name_is_looked_for_and_a_path_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().as_os_str();
        let program = directory.path().join("tool");
        std::fs::write(&program, "").unwrap();
        assert_eq!(find_in(Path::new("tool"), path), Path::new("tool"), "it cannot be executed");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_in(Path::new("tool"), path), program);
        assert_eq!(find_in(Path::new("/no/tool"), path), Path::new("/no/tool"));
        assert_eq!(find_in(Path::new("other"), path), Path::new("other"));
    }
}
