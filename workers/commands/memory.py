"""/memory: what is noted about whoever speaks here, and forgetting it."""

from __future__ import annotations

from shared.context.marks import SENDER_ID, user_row
from shared.context.memory import owner
from shared.store.change import Change
from shared.store.memory import forget_note, forget_notes
from workers.commands import Command, CommandAnswer, CommandCall, number, register

LISTED = 100
USAGE = "/memory shows what I have noted; /memory forget N deletes a note, /memory forget all deletes all."


async def memory(call: CommandCall) -> CommandAnswer:
    """Notes are numbered as they are listed: new ones come last."""
    whose = owner(call.key, user_row(call.inbound).data.get(SENDER_ID))
    notes = await call.store.memory.of(whose, LISTED)
    verb, _, which = call.args.lower().partition(" ")
    if not verb:
        lines = [f"{n}. {note.text}" for n, note in enumerate(notes, 1)]
        return CommandAnswer(
            "\n".join([*lines, "", "/memory forget N deletes one."]) if lines else "I have noted nothing."
        )
    if verb != "forget" or not which.strip():
        return CommandAnswer(USAGE)
    if which.strip() == "all":
        return CommandAnswer("I have forgotten all notes.", Change(also=(forget_notes(whose),)))
    n = number(which.strip()) or 0
    if not 1 <= n <= len(notes):
        return CommandAnswer(f"There is no note {which.strip()[:20]}.")
    note = notes[n - 1]
    change = Change(also=(forget_note(whose, note.id),))
    return CommandAnswer(f"I have forgotten: {note.text}", change)


register(Command("memory", "what I have noted, and forgetting it", memory, args="[forget N | forget all]"))
