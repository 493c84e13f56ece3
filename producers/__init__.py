"""From the outside to the mailbox: nothing here runs an agent."""
