"""Who attacks a receiver that tells transmitters by their hardware, and what comes of it: `make study-threats`."""
