"""A request with pictures in it, written as it is sent: a picture is read from its place and never whole in memory."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence

from shared.value import value
from workers.agents.model.attachments import Picture


@value
class PicturedBody:
    """A body in JSON with a placeholder for each picture, in order, and how many bytes it will be."""

    text: bytes
    pictures: Sequence[Picture]

    @property
    def size(self) -> int:
        return len(self.text) + sum(_written_size(picture) - len(picture.placeholder) for picture in self.pictures)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body. NotKept where a picture has vanished meanwhile: the request is broken off then."""
        rest = self.text
        for picture in self.pictures:
            before, _, rest = rest.partition(picture.placeholder.encode())
            yield before + _prefix(picture)
            left = b""
            async for chunk in picture.chunks():
                whole = left + chunk
                end = len(whole) - len(whole) % 3
                left = whole[end:]
                yield base64.b64encode(whole[:end])
            yield base64.b64encode(left)
        yield rest


def _prefix(picture: Picture) -> bytes:
    return f"data:{picture.type};base64,".encode()


def _written_size(picture: Picture) -> int:
    return len(_prefix(picture)) + 4 * -(-picture.size // 3)
