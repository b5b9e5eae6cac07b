//! Checks whether all records of the data directory can be read. A daemon may use them meanwhile.

use std::path::Path;

use super::Check;
use crate::repair::DATABASE;

/// How many unreadable records or damaged items are named.
const NAMED: usize = 5;

const NAME: &str = "records";

pub(super) async fn checks(data: &Path) -> Vec<Check> {
    vec![check(data).await]
}

/// Reports the damage that a daemon found when it read data on the disk.
pub(super) fn damage(data: &Path) -> Check {
    const NAME: &str = "damage";
    let next_step = "import or pull damaged images again to repair them; use older snapshots; check the disk. \
                     `dorm gc --verify` reads everything";
    match dorm_pool::damage_in(data) {
        Ok(damage) if damage.is_empty() => Check::ok(NAME, "none known"),
        Ok(damage) => {
            let mut named: Vec<_> = damage.iter().take(NAMED).map(dorm_pool::Damage::sentence).collect();
            if damage.len() > NAMED {
                named.push(format!("and {} more", damage.len() - NAMED));
            }
            Check::warn(NAME, named.join("; "), next_step)
        }
        Err(error) => {
            Check::warn(NAME, format!("cannot read {}: {error}", data.join(dorm_pool::DAMAGED).display()), next_step)
        }
    }
}

async fn check(data: &Path) -> Check {
    let database = data.join(DATABASE);
    let repair = format!(
        "stop the daemon and run `dorm repair --data {} --dry-run`; until then nothing that the records may need is deleted",
        data.display()
    );
    if !database.is_file() {
        let is_orphaned = ["captures", crate::records::DIRECTORY].iter().any(|name| has_entries(&data.join(name)));
        return match is_orphaned {
            true => Check::fail(NAME, format!("{} is missing, but there are saved states", database.display()), repair),
            false => Check::ok(NAME, "none yet"),
        };
    }
    match dorm_store_sql::check(&database).await {
        Ok(check) if check.is_whole() => {
            Check::ok(NAME, format!("all {} can be read", check.rows.values().sum::<u64>()))
        }
        Ok(check) if check.faults.is_empty() => {
            let mut named: Vec<_> =
                check.unreadable.iter().take(NAMED).map(|row| format!("{} ({})", row.title(), row.what)).collect();
            if check.unreadable.len() > NAMED {
                named.push(format!("and {} more", check.unreadable.len() - NAMED));
            }
            Check::warn(
                NAME,
                format!("{} records cannot be read: {}", check.unreadable.len(), named.join(", ")),
                repair,
            )
        }
        Ok(check) => Check::fail(NAME, format!("{} is damaged: {}", database.display(), check.faults[0]), repair),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            Check::fail(NAME, format!("cannot read {}: {error}{cause}", database.display()), repair)
        }
    }
}

fn has_entries(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::repair::tests::{Place, sandbox_id};

    #[tokio::test]
    async fn what_cannot_be_read_is_named_with_the_next_step() {
        let place = Place::new().await;
        assert_eq!(check(place.data()).await.verdict, Verdict::Ok);
        place.sql("UPDATE sandboxes SET document = '{'").await;
        let found = check(place.data()).await;
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(found.found.contains(sandbox_id().as_str()) && found.next_step.contains("dorm repair"), "{found:?}");
        std::fs::write(place.data().join(DATABASE), "no database").unwrap();
        assert_eq!(check(place.data()).await.verdict, Verdict::Fail);
        std::fs::remove_file(place.data().join(DATABASE)).unwrap();
        assert_eq!(check(place.data()).await.verdict, Verdict::Fail);
    }
}
