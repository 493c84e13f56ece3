"""An MCP server with one tool, for the `llm` agent. Needs the package `mcp`, which `../../run install mcp` brings to the checkout's Python.

Start the agent in this directory, with any OpenAI-compatible server for the model:

    export KEYTURN_LLM__MODEL=some-model KEYTURN_LLM__BASE_URL=http://localhost:11434/v1
    KEYTURN_LLM__MCP='{"shop": {"line": "../../.venv/bin/python mcp_server.py"}}' ../../run up --agent llm
"""

from mcp.server import MCPServer

server = MCPServer("shop")


@server.tool()
def opening_hours(day: str) -> str:
    """Say when the shop is open on a day of the week."""
    return "closed" if day.lower() == "sunday" else "9 to 17"


if __name__ == "__main__":
    server.run("stdio")
