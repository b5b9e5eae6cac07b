-- Where events are sent to, and how far that has come.
CREATE TABLE webhooks (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
