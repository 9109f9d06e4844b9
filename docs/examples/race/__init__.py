"""An example of a game of one's own."""
