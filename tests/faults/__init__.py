"""What the software does with damaged files and when it is killed: `python -m tests.faults --cases N --kills K`."""
