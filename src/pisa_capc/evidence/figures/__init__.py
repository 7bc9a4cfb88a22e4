"""Figures for a paper: vector files with text as text, legible at the width of an IEEE column, in colours for all eyes.

`style` says how all of them look and are written; `protocol` draws those that records are enough for, `run` those that
need a trained model, each kind with a file of its own; `dataset`, `recording` and `measured` need no model.
"""
