"""How long records are kept. Transcripts stay unless an operator says otherwise; the pipeline's own records go after 30 days."""

from __future__ import annotations

from pydantic import Field, model_validator

from shared.settings.section import Block, Section

LONGEST_DAYS = 36_500  # a hundred years: beyond the calendar no step could be counted; 0 is for ever


class RetentionSettings(Block):
    """How many days each kind of record is kept; 0: for ever. A housekeeper removes what is older, a little at a time."""

    journal_days: int = Field(default=30, ge=0, le=LONGEST_DAYS)
    """The words of messages that have ended, in the journal. How and when each ended is kept for ever, so that a message which a
    platform sends again is still recognised. Where TURN_DAYS is the same, nothing says any more in which conversation it was."""
    outbox_days: int = Field(default=30, ge=0, le=LONGEST_DAYS)
    """Parts of replies that were sent, or given up on. The transcript keeps what was said."""
    turn_days: int = Field(default=30, ge=0, le=LONGEST_DAYS)
    """The record of each turn: which worker ran it, and when. `keyturn messages trace` shows no times after that."""
    dead_days: int = Field(default=30, ge=0, le=LONGEST_DAYS)
    """Dead letters that were replayed or dropped."""
    open_dead_days: int = Field(default=0, ge=0, le=LONGEST_DAYS)
    """Dead letters that nobody has decided on. They can no longer be replayed after that."""
    session_days: int = Field(default=0, ge=0, le=LONGEST_DAYS)
    """Conversations that ended (by /new, or by RESET__…) with their transcripts. Notes that were made of them stay. One with a reply
    that is still to be sent, or whose dead letter is open, stays for as long."""
    superseded_days: int = Field(default=0, ge=0, le=LONGEST_DAYS)
    """Rows of transcripts that left their conversation: undone, or replaced by a summary."""
    search_days: int = Field(default=0, ge=0, le=LONGEST_DAYS)
    """How long search finds what was said. The transcript stays."""
    usage_days: int = Field(default=400, ge=0, le=LONGEST_DAYS)
    """What answers cost, by day. Budgets count up to a month back."""
    audit_days: int = Field(default=400, ge=0, le=LONGEST_DAYS)
    """What operators did."""
    blob_days: int = Field(default=0, ge=0, le=LONGEST_DAYS)
    """Files of conversations, unless a reply waits there or has an open dead letter. The transcript still names them;
    MEDIA__ORPHAN_HOURS later their bytes are removed."""

    @model_validator(mode="after")
    def _turns_outlive_their_words(self) -> RetentionSettings:
        """`keyturn sessions delete` finds the words of a conversation by its turns."""
        if self.turn_days and not all(0 < days <= self.turn_days for days in (self.journal_days, self.outbox_days)):
            raise ValueError("TURN_DAYS must be at least JOURNAL_DAYS and OUTBOX_DAYS: words are found by their turns")
        if self.session_days and not 0 < self.turn_days <= self.session_days:
            raise ValueError("SESSION_DAYS must be at least TURN_DAYS: a conversation goes after its turns")
        if 0 < self.usage_days < 32:
            raise ValueError("USAGE_DAYS must be 0 or at least 32: budgets count up to a month back")
        return self


class KeepingSettings(Section):
    """How long records are kept."""

    TITLE = "Retention"

    retention: RetentionSettings = RetentionSettings()
    """How many days each kind of record is kept."""
