"""`./run bench`: what a message costs here, what it costs elsewhere, and what the least is that it could cost.

Every contestant runs the same load by the same rules: the messages wait before the worker starts; the worker is a
process of its own; the clock and its CPU time run from the moment that it may begin until everything is done.
"""
