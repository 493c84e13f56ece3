"""What all workers together may ask of a model's provider: counted in Redis, in Redis' time."""
