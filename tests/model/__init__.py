"""The protocol as a model small enough to be explored whole: every interleaving, every fault at every step."""
