"""A page that shows what a listener hears."""
