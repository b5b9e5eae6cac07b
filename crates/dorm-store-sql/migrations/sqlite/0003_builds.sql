-- Builds of images.
CREATE TABLE builds (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- Names under which sandboxes are created.
CREATE TABLE templates (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
