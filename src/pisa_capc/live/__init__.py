"""Identification of what is received now: the listener, and the same with a web page."""
