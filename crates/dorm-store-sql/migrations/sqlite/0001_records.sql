-- What is filtered by or has to be unique is a column; the whole record is the document (dorm_store::codec).

-- 'dorm': says whose file this is.
PRAGMA application_id = 1685025389;

CREATE TABLE sandboxes (
    id       TEXT    NOT NULL PRIMARY KEY,
    project  TEXT    NOT NULL,
    name     TEXT,
    state    TEXT    NOT NULL,
    revision INTEGER NOT NULL CHECK (revision > 0),
    document TEXT    NOT NULL
) STRICT;

CREATE INDEX sandboxes_of_project ON sandboxes (project, id);

CREATE UNIQUE INDEX living_names ON sandboxes (project, name) WHERE name IS NOT NULL AND state <> 'terminated';

CREATE TABLE labels (
    sandbox TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (sandbox, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_by_value ON labels (key, value, sandbox);

CREATE TABLE operations (
    id       TEXT    NOT NULL PRIMARY KEY,
    is_open  INTEGER NOT NULL CHECK (is_open IN (0, 1)),
    document TEXT    NOT NULL
) STRICT;

CREATE INDEX open_operations ON operations (id) WHERE is_open = 1;

CREATE TABLE snapshots (
    id       TEXT NOT NULL PRIMARY KEY,
    project  TEXT NOT NULL,
    document TEXT NOT NULL
) STRICT;

CREATE INDEX snapshots_of_project ON snapshots (project, id);

-- Captures whose files are to be deleted, until they have been.
CREATE TABLE discards (
    capture TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a number is never used again, whatever is deleted.
CREATE TABLE events (
    number   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    project  TEXT    NOT NULL,
    sandbox  TEXT    NOT NULL,
    document TEXT    NOT NULL
) STRICT;

CREATE INDEX events_of_project ON events (project, number);

CREATE INDEX events_of_sandbox ON events (sandbox, number);
