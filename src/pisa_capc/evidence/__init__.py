"""Evidence on data and results: limits, checks, evaluation, benchmarks, figures and reports."""
