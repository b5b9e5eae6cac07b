//! Writes environments.

use dorm_store::{Change, EnvironmentRecord, StoreError, codec, key_hash};
use sqlx::SqliteConnection;

use super::{failed, parsed_holder};

pub(super) async fn write(connection: &mut SqliteConnection, change: &Change) -> Result<(), StoreError> {
    for id in &change.removed_environments {
        sqlx::query("DELETE FROM environments WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *connection)
            .await
            .map_err(|error| failed("remove an environment", error))?;
    }
    for environment in &change.environments {
        write_one(connection, environment).await?;
    }
    Ok(())
}

async fn write_one(connection: &mut SqliteConnection, environment: &EnvironmentRecord) -> Result<(), StoreError> {
    let (id, project, hash) = (environment.id.as_str(), environment.project.as_str(), key_hash(&environment.key));
    // The unique index would refuse it as well, but could not report which environment has the key.
    let holder: Option<String> =
        sqlx::query_scalar("SELECT id FROM environments WHERE project = ? AND key_hash = ? AND id <> ?")
            .bind(project)
            .bind(hash.as_str())
            .bind(id)
            .fetch_optional(&mut *connection)
            .await
            .map_err(|error| failed("look up a key", error))?;
    if let Some(holder) = holder {
        let key = Box::new(environment.key.clone());
        return Err(StoreError::KeyTaken { holder: parsed_holder(&key.to_string(), &holder)?, key });
    }
    let document = codec::encode_environment(environment).map_err(|error| failed("write an environment", error))?;
    sqlx::query(
        "INSERT INTO environments (id, project, key_hash, document) VALUES (?, ?, ?, ?) \
         ON CONFLICT (id) DO UPDATE SET project = excluded.project, key_hash = excluded.key_hash, \
         document = excluded.document",
    )
    .bind(id)
    .bind(project)
    .bind(hash.as_str())
    .bind(document)
    .execute(&mut *connection)
    .await
    .map_err(|error| failed("write an environment", error))?;
    Ok(())
}
