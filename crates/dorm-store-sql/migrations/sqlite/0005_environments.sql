-- Environments: what callers ask for by a key. The hash is the SHA-256 of the key.
CREATE TABLE environments (
    id       TEXT NOT NULL PRIMARY KEY,
    project  TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX environments_by_key ON environments (project, key_hash);
