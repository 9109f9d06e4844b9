"""The update loop and the algorithms."""
