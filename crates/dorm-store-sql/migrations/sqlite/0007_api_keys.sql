-- Keys that open the API. The documents hold their hashes.
CREATE TABLE api_keys (
    id       TEXT NOT NULL PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
