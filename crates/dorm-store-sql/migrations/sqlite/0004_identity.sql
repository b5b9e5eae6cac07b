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
