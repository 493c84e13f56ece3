"""What a model is shown: history, context prompt, senders. And when a conversation ends. Pure functions, no I/O."""
