"""From the mailbox to the outbox and back to the outside."""
