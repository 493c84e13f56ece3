-- What answers cost: per session, owner, agent, model and day. Written by the commit of the turn that cost it.
CREATE TABLE usage (
    session_id TEXT NOT NULL,
    owner TEXT NOT NULL,             -- empty: nobody we could tell from others
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    day TEXT NOT NULL,               -- 2026-11-16
    requests BIGINT NOT NULL,
    input BIGINT NOT NULL,
    output BIGINT NOT NULL,
    cache_read BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    total BIGINT NOT NULL,
    cost_nano BIGINT NOT NULL,       -- USD × 10⁹, of the requests whose price is known
    priced BIGINT NOT NULL,          -- requests whose price is known
    last_prompt BIGINT,              -- input tokens of the last request of a turn; asides have none
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (session_id, day, owner, agent, model)
) {{clustered}};
CREATE INDEX usage_of_owner ON usage (owner, day);
CREATE INDEX usage_of_day ON usage (day);
