"""Thoughts that a model writes into its text, between `<think>` and `</think>` at the beginning of the answer."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


class TaggedThoughts:
    """Takes text as it comes and tells thoughts from the answer. Holds back what may still become a tag."""

    __slots__ = ("_held", "_is_thinking", "_is_undecided")

    def __init__(self) -> None:
        self._held = ""
        self._is_undecided = True  # nothing but the beginning of a tag has come
        self._is_thinking = False

    def split(self, text: str) -> tuple[str, str]:
        """The part of it that is the answer, and the part that is thought."""
        if not (self._is_undecided or self._is_thinking):
            return text, ""
        self._held += text
        if self._is_undecided:
            begun = self._held.lstrip()
            if OPEN.startswith(begun):
                return "", ""
            self._is_undecided, self._is_thinking = False, begun.startswith(OPEN)
            if not self._is_thinking:
                return self._released(), ""
            self._held = begun.removeprefix(OPEN)
        thought, closed, answer = self._held.partition(CLOSE)
        if closed:
            self._is_thinking, self._held = False, answer.lstrip()
            return self._released(), thought
        kept = next((n for n in range(len(CLOSE) - 1, 0, -1) if thought.endswith(CLOSE[:n])), 0)
        self._held = thought[len(thought) - kept :]
        return "", thought[: len(thought) - kept]

    def end(self) -> tuple[str, str]:
        """What is still held back."""
        held = self._released()
        return ("", held) if self._is_thinking else (held, "")

    def _released(self) -> str:
        held, self._held = self._held, ""
        return held
