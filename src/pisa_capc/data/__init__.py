"""Samples and datasets, the frames that everything later reads, splits of them, and scores."""
