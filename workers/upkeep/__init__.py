"""What the housekeeper does, one file for each duty."""
