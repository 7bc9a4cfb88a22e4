"""Benchmarks: a protocol in YAML, its runs as records, and tables from the records alone.

protocols  what is compared, with every setting written out
plan       the runs of a protocol, and which of them make one job
data       the dataset of a protocol: simulated, imported or given
records    a finished run as a JSON file named by the hash of all that determines it
job        train and score the runs of one job
run        jobs one after the other, skipping what is recorded
search     hyperparameters chosen without the target, through the same runner
results    records by what they are of; paired differences; deployed: scores by deployment
tables     the paper's tables; render: as Markdown, LaTeX and CSV

Planning, records and their state work without torch, so that looking at finished work is quick.
"""
