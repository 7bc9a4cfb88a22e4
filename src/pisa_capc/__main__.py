"""`python -m pisa_capc` is the command `pisa`."""

from pisa_capc.cli import main

main()
