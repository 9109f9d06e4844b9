"""An example of a game outside the actor's process."""
