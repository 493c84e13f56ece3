"""Programs that run for an agent: started under limits, and ended with everything that they started."""
