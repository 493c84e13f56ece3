"""The agent contract as values: what an agent is given (`turn`), what it yields (`events`), and both as JSON (`wire`)."""
