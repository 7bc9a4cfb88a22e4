"""Decisions on embeddings: calibration, rejection, enrolment, identification and verification."""
