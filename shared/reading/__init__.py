"""What an operator may see. Reading changes nothing."""
