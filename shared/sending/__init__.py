"""What all workers share when they send: how much may leave now."""
