"""A nanobot workspace: `workspace.py` gives its conversations, `layout.py` knows where they lie."""
