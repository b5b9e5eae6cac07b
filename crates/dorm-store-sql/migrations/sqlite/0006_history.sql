-- Nothing reads the whole history. A column that is generated from the document says nothing new: it is what an index needs.

CREATE INDEX sandboxes_living ON sandboxes (project, id) WHERE state <> 'terminated';

CREATE INDEX sandboxes_of_name ON sandboxes (project, name) WHERE name IS NOT NULL;

-- When a sandbox was terminated, in milliseconds. ANY: a moment may be beyond what an INTEGER holds.
ALTER TABLE sandboxes ADD COLUMN ended ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.state.terminated.at') END) VIRTUAL;
CREATE INDEX sandboxes_over ON sandboxes (ended) WHERE state = 'terminated';

ALTER TABLE sandboxes ADD COLUMN origin TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.origin.snapshot.snapshot'),
        json_extract(document, '$.origin.filesystem.snapshot')) END) VIRTUAL;
CREATE INDEX sandboxes_of_origin ON sandboxes (origin) WHERE origin IS NOT NULL;

ALTER TABLE sandboxes ADD COLUMN origin_source TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.origin.snapshot.source'),
        json_extract(document, '$.origin.filesystem.source')) END) VIRTUAL;
CREATE INDEX sandboxes_of_source ON sandboxes (origin_source) WHERE origin_source IS NOT NULL;

ALTER TABLE operations ADD COLUMN ended ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.ended.at') END) VIRTUAL;
CREATE INDEX operations_over ON operations (ended) WHERE is_open = 0;

ALTER TABLE snapshots ADD COLUMN created ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.created') END) VIRTUAL;
ALTER TABLE snapshots ADD COLUMN source TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.source') END) VIRTUAL;
ALTER TABLE snapshots ADD COLUMN capture TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.capture') END) VIRTUAL;
ALTER TABLE snapshots ADD COLUMN layer TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.layer') END) VIRTUAL;
ALTER TABLE snapshots ADD COLUMN image TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.image') END) VIRTUAL;
ALTER TABLE snapshots ADD COLUMN made_by TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.made_by'), 'request') END) VIRTUAL;
ALTER TABLE snapshots ADD COLUMN leaving INTEGER GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.status') = 'deleting'
        OR coalesce(json_extract(document, '$.removal'), 'asked') <> 'asked' END) VIRTUAL;
-- What a complete one occupies.
ALTER TABLE snapshots ADD COLUMN bytes ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) AND json_extract(document, '$.status') = 'completed'
        THEN json_extract(document, '$.bytes') END) VIRTUAL;

CREATE INDEX snapshots_in_order ON snapshots (project, created, id);
CREATE INDEX snapshots_of_source ON snapshots (source, created, id);
CREATE INDEX snapshots_of_capture ON snapshots (capture);
CREATE INDEX snapshots_of_layer ON snapshots (layer) WHERE layer IS NOT NULL;
CREATE INDEX snapshots_of_image ON snapshots (image);
CREATE INDEX snapshots_leaving ON snapshots (id) WHERE leaving = 1;
CREATE INDEX snapshots_complete ON snapshots (bytes) WHERE bytes IS NOT NULL;

-- The snapshot that an event says was taken.
ALTER TABLE events ADD COLUMN taken TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) AND json_extract(document, '$.kind') = 'snapshot_taken'
        THEN json_extract(document, '$.detail') END) VIRTUAL;
CREATE INDEX events_of_taken ON events (taken) WHERE taken IS NOT NULL;

-- What was last noted of the clocks: one row.
CREATE TABLE clock (
    only_one INTEGER NOT NULL PRIMARY KEY CHECK (only_one = 1),
    document TEXT    NOT NULL
) STRICT;
