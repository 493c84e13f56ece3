-- Small named values that a turn needs to know: of a session (scope = its id), of a platform, of a user.
CREATE TABLE facts (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (scope, name)
) {{clustered}};
