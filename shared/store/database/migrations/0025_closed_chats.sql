-- Chats that take nothing from us any more: the bot was blocked or removed, or the chat is gone.
CREATE TABLE closed_chats (
    destination TEXT PRIMARY KEY,
    reason TEXT NOT NULL,            -- in the platform's words
    since BIGINT NOT NULL
) {{clustered}};
