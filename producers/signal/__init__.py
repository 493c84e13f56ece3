"""Signal, by the daemon of signal-cli."""
