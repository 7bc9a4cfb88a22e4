"""Calibration: better decisions from a frozen classifier's embeddings and logits, without labels."""
