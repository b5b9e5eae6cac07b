//! The migrations, which are compiled in.
//!
//! `sqlx::migrate!` would list them, but needs SQLite a second time, compiled for the compiler.

use std::sync::LazyLock;

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// All of them. Each one runs in a transaction.
pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |(version, what, statements): (i64, &'static str, &'static str)| {
        Migration::new(version, what.into(), MigrationType::Simple, statements.into_sql_str(), false)
    };
    Migrator::with_migrations(FILES.map(migration).to_vec())
});

/// The version, the name and the content of each file. A released one never changes: files have its
/// checksum.
const FILES: [(i64, &str, &str); 5] = [
    (1, "records", include_str!("../../migrations/sqlite/0001_records.sql")),
    (2, "projects", include_str!("../../migrations/sqlite/0002_projects.sql")),
    (3, "builds", include_str!("../../migrations/sqlite/0003_builds.sql")),
    (4, "snapshot names", include_str!("../../migrations/sqlite/0004_snapshot_names.sql")),
    (5, "environments", include_str!("../../migrations/sqlite/0005_environments.sql")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_migration() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
        let files = std::fs::read_dir(directory).unwrap();
        let mut found: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        found.sort();
        let listed = FILES.map(|(version, what, _)| format!("{version:04}_{}.sql", what.replace(' ', "_")));
        assert_eq!(found, listed);
    }
}
