-- What is filtered by or has to be unique is a column; the whole record is the document (dorm_store::codec).
-- Nothing reads the whole history. A column that is generated from the document says nothing new: it is what an index
-- needs. ANY is the type of moments and sizes, which may be beyond what an INTEGER holds.

-- 'dorm': says whose file this is.
PRAGMA application_id = 1685025389;

CREATE TABLE sandboxes (
    id       TEXT    NOT NULL PRIMARY KEY,
    project  TEXT    NOT NULL,
    name     TEXT,
    state    TEXT    NOT NULL,
    revision INTEGER NOT NULL CHECK (revision > 0),
    document TEXT    NOT NULL,
    -- When it was terminated, in milliseconds.
    ended ANY GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.state.terminated.at') END) VIRTUAL,
    origin TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.origin.snapshot.snapshot'),
            json_extract(document, '$.origin.filesystem.snapshot')) END) VIRTUAL,
    origin_source TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.origin.snapshot.source'),
            json_extract(document, '$.origin.filesystem.source')) END) VIRTUAL
) STRICT;

CREATE INDEX sandboxes_of_project ON sandboxes (project, id);
CREATE INDEX sandboxes_living ON sandboxes (project, id) WHERE state <> 'terminated';
CREATE INDEX sandboxes_of_name ON sandboxes (project, name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX living_names ON sandboxes (project, name) WHERE name IS NOT NULL AND state <> 'terminated';
CREATE INDEX sandboxes_over ON sandboxes (ended) WHERE state = 'terminated';
CREATE INDEX sandboxes_of_origin ON sandboxes (origin) WHERE origin IS NOT NULL;
CREATE INDEX sandboxes_of_source ON sandboxes (origin_source) WHERE origin_source IS NOT NULL;

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
    document TEXT    NOT NULL,
    ended ANY GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.ended.at') END) VIRTUAL,
    began ANY GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.began') END) VIRTUAL,
    sandbox TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.sandbox') END) VIRTUAL
) STRICT;

CREATE INDEX open_operations ON operations (id) WHERE is_open = 1;
CREATE INDEX operations_over ON operations (ended) WHERE is_open = 0;
-- Operations are listed newest first, of all sandboxes or of one.
CREATE INDEX operations_in_order ON operations (began, id);
CREATE INDEX operations_of_sandbox ON operations (sandbox, began, id);

CREATE TABLE snapshots (
    id       TEXT NOT NULL PRIMARY KEY,
    project  TEXT NOT NULL,
    document TEXT NOT NULL,
    created ANY GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.created') END) VIRTUAL,
    source TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.source') END) VIRTUAL,
    saved_state TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.saved_state') END) VIRTUAL,
    layer TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.layer') END) VIRTUAL,
    image TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.image') END) VIRTUAL,
    made_by TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.made_by') END) VIRTUAL,
    leaving INTEGER GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) THEN json_extract(document, '$.status') = 'deleting'
            OR json_extract(document, '$.removal') <> 'asked' END) VIRTUAL,
    -- What a complete one occupies.
    bytes ANY GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) AND json_extract(document, '$.status') = 'completed'
            THEN json_extract(document, '$.bytes') END) VIRTUAL
) STRICT;

CREATE INDEX snapshots_of_project ON snapshots (project, id);
CREATE INDEX snapshots_in_order ON snapshots (project, created, id);
CREATE INDEX snapshots_of_source ON snapshots (source, created, id);
CREATE INDEX snapshots_of_saved_state ON snapshots (saved_state);
CREATE INDEX snapshots_of_layer ON snapshots (layer) WHERE layer IS NOT NULL;
CREATE INDEX snapshots_of_image ON snapshots (image);
CREATE INDEX snapshots_leaving ON snapshots (id) WHERE leaving = 1;
CREATE INDEX snapshots_complete ON snapshots (bytes) WHERE bytes IS NOT NULL;

-- Saved states whose files are to be deleted, until they have been.
CREATE TABLE discards (
    saved_state TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a number is never used again, whatever is deleted.
CREATE TABLE events (
    number   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    project  TEXT    NOT NULL,
    sandbox  TEXT    NOT NULL,
    document TEXT    NOT NULL,
    -- The snapshot that it says was taken.
    taken TEXT GENERATED ALWAYS AS
        (CASE WHEN json_valid(document) AND json_extract(document, '$.kind') = 'snapshot_taken'
            THEN json_extract(document, '$.detail') END) VIRTUAL
) STRICT;

CREATE INDEX events_of_project ON events (project, number);
CREATE INDEX events_of_sandbox ON events (sandbox, number);
CREATE INDEX events_of_taken ON events (taken) WHERE taken IS NOT NULL;

-- Where events are sent to, and how far that has come.
CREATE TABLE webhooks (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- Keys that open the API. The documents hold their hashes.
CREATE TABLE api_keys (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- Storage that outlives sandboxes. Who has it mounted follows from the records of sandboxes.
CREATE TABLE volumes (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- What was last noted of the clocks: one row.
CREATE TABLE clock (
    only_one INTEGER NOT NULL PRIMARY KEY CHECK (only_one = 1),
    document TEXT    NOT NULL
) STRICT;

-- The data directory that this store belongs to; no row before it was told.
CREATE TABLE identity (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    id   TEXT    NOT NULL
) STRICT;

-- The number of the last change of each writer. After a commit of which the end was not seen it tells whether the change
-- was made.
CREATE TABLE writers (
    ordinal INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    change  INTEGER NOT NULL,
    settled INTEGER NOT NULL
) STRICT;

-- Requests with an idempotency key, until they are too old for a retry. `made_at` is in milliseconds.
CREATE TABLE requests (
    id       TEXT    NOT NULL PRIMARY KEY,
    made_at    INTEGER NOT NULL,
    document TEXT    NOT NULL
) STRICT;

CREATE INDEX requests_made_at ON requests (made_at);
