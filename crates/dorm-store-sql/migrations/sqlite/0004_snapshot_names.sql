-- The names under which snapshots serve as images. A table of its own, so that a name stays taken while the row of its
-- snapshot cannot be read.
CREATE TABLE snapshot_names (
    project  TEXT NOT NULL,
    name     TEXT NOT NULL,
    snapshot TEXT NOT NULL UNIQUE REFERENCES snapshots (id) ON DELETE CASCADE,
    PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;
