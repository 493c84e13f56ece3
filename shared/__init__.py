"""The words and stores that producers and workers agree on. Imports neither of them."""

VERSION = "0.1.0"
