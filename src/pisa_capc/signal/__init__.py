"""Signals: what devices send, how it is recorded, found, measured, simulated and read from other formats."""
