"""The HTTP server of a receiver, and what it spends on requests whose sender is not known yet."""
