"""A hermes home: `home.py` gives its conversations, the others know one of its stores each."""
