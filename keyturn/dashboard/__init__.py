"""The dashboard: what `shared/reading` and `shared/operating` offer, as web pages. It decides nothing by itself.

Pages are made on the server and work without script. Every change is a POST that the guard has checked and the audit log
has written down before it is made.
"""
