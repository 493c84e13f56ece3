"""MCP servers whose tools the `llm` agent offers to its model. One connection for each server and worker, shared by all turns."""
