"""A small MCP server, for tests: a script, over stdio or with `--http PORT`.

| option | effect |
|---|---|
| `--hang PATH` | says nothing, ever; its process id is in the file |
| `--broken` | ends at once |
| `--json` | over HTTP, answers are JSON and no streams |
| `--describe FILE` | the text of the file is what `add` says of itself |
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

LONG_SECONDS = 600


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""


def main() -> None:
    if "--broken" in sys.argv:
        sys.exit(3)
    if path := option("--hang"):
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(LONG_SECONDS)
    import anyio
    from mcp.server import MCPServer
    from mcp_types import ToolAnnotations

    server = MCPServer("test")
    described = "Add two numbers."
    if path := option("--describe"):
        with open(path) as file:
            described = file.read()

    @server.tool(description=described, annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def where() -> str:
        """Say which process this is."""
        return str(os.getpid())

    @server.tool()
    def environment() -> str:
        """Say the names of all variables."""
        return " ".join(sorted(os.environ))

    @server.tool()
    async def token(seconds: float) -> str:
        """Say with which token this server was started, after a while."""
        await anyio.sleep(seconds)
        return os.environ.get("SHOP_TOKEN", "none")

    @server.tool()
    def grow(path: str) -> str:
        """Start a process that tries to stay, and write down its id."""
        child = subprocess.Popen(
            ["setsid", "nohup", "sleep", str(LONG_SECONDS)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with open(path, "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        return "grown"

    @server.tool()
    async def wait() -> str:
        """Wait for ever."""
        await anyio.sleep(LONG_SECONDS)
        return "late"

    @server.tool()
    def die() -> str:
        """End the server."""
        os._exit(9)

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ValueError("no luck")

    @server.tool()
    def talk(characters: int) -> str:
        """Say a lot."""
        return "x" * characters

    if port := option("--http"):
        server.run("streamable-http", host="127.0.0.1", port=int(port), json_response="--json" in sys.argv)
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
