"""Google Research Football: the engine in processes of its own, and the MDP over it."""
