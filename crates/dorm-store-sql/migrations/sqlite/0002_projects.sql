-- Projects, and what each of them may use. The project 'local' needs no row.
CREATE TABLE projects (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- Operations are listed per project. Those of version 1 name none: they belong to the only project that there was.
ALTER TABLE operations ADD COLUMN project TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.project'), 'local') END) VIRTUAL;

DROP INDEX operations_in_order;
CREATE INDEX operations_of_project ON operations (project, began, id);

-- Sandboxes that are made in advance.
CREATE TABLE pools (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- Sandboxes are listed by when they were created or last began to run, too.
ALTER TABLE sandboxes ADD COLUMN created ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.created') END) VIRTUAL;
ALTER TABLE sandboxes ADD COLUMN started ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.started'), 0) END) VIRTUAL;
CREATE INDEX sandboxes_by_creation ON sandboxes (project, created, id);
CREATE INDEX sandboxes_by_start ON sandboxes (project, started, id);
