"""What an operator may see. The command line, the API and the dashboard read the pipeline through these functions.

Reading changes nothing. Every function returns frozen values; times are `datetime` in UTC. NotFound says that something
is not there, Unavailable that a store which would know does not answer.
"""
