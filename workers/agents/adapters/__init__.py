"""Agents of other libraries, made into ours. Each adapter is loaded when such an object is plugged in, and not before."""
