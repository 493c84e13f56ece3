"""Tools: functions of the user's that a model may call."""
