"""A form with a file in it, as APIs take uploads. The file is read while it is sent and never whole in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import field
from uuid import uuid4

from shared.value import value


@value
class Upload:
    """A file that goes out. Its name has no quotes, no line ends and no path: see workers/media/names.py."""

    name: str
    type: str
    size: int
    chunks: Callable[[], AsyncIterator[bytes]] = field(compare=False, repr=False)


@value
class Multipart:
    """Fields of text and one file under the name `file_field`. Can be sent several times."""

    fields: Mapping[str, str]
    file_field: str
    file: Upload
    boundary: str = field(default_factory=lambda: f"keyturn-{uuid4().hex}")

    @property
    def headers(self) -> dict[str, str]:
        size = len(self._before()) + self.file.size + len(self._after())
        return {"content-type": f"multipart/form-data; boundary={self.boundary}", "content-length": str(size)}

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._before()
        async for chunk in self.file.chunks():
            yield chunk
        yield self._after()

    def _before(self) -> bytes:
        parts = [
            f'--{self.boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
            for name, text in self.fields.items()
        ]
        parts.append(
            f'--{self.boundary}\r\ncontent-disposition: form-data; name="{self.file_field}"; '
            f'filename="{self.file.name}"\r\ncontent-type: {self.file.type}\r\n\r\n'
        )
        return "".join(parts).encode()

    def _after(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()
