"""Who is in a recording, and is it who it claims to be."""
