"""What is known about data and results: limits, checks, evaluation, benchmarks, figures and reports."""
