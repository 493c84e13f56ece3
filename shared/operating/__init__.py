"""What an operator may do. The command line and the dashboard act through these functions only."""
