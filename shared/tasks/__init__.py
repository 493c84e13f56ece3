"""Background work: turns in conversations of their own, whose results come back as mail to the conversation that asked."""
