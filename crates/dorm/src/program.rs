//! Finds programs.

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
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let mut found = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    found.find_map(|directory| Some(directory.join(program)).filter(is_program)).unwrap_or_else(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
