-- Operations are listed newest first, of all sandboxes or of one.
ALTER TABLE operations ADD COLUMN began ANY GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.began') END) VIRTUAL;
ALTER TABLE operations ADD COLUMN sandbox TEXT GENERATED ALWAYS AS
    (CASE WHEN json_valid(document) THEN json_extract(document, '$.sandbox') END) VIRTUAL;
CREATE INDEX operations_in_order ON operations (began, id);
CREATE INDEX operations_of_sandbox ON operations (sandbox, began, id);
