"""What an operator may do. The command line and the dashboard act on the pipeline through these functions only.

Each returns when its effect is durable, may be repeated after a crash, and says with a frozen value what came of it.
CannotDo says in words why something was not done; nothing was changed then.
"""
