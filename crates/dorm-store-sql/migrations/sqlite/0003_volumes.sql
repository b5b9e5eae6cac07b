-- Storage that outlives sandboxes. Who has it mounted follows from the records of sandboxes.
CREATE TABLE volumes (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
