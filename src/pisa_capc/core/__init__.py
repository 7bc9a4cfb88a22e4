"""What every other package may use: errors, settings, parts by name, random generators, workers and threads."""
