"""Self-play: the pool of frozen opponents, who meets whom, ratings, and what the pool is worth as a game."""
