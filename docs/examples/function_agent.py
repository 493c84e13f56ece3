"""The smallest agent: a function from text to text.

Start it in this directory with `../../run up --agent function_agent:answer`.
"""


async def answer(text: str) -> str:
    """Answer one message. If this raises, Keyturn tries the message again, three times by default."""
    return f"{len(text.split())} words, and backwards they read: {text[::-1]}"
