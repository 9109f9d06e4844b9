"""The evaluator that trains: a population of learning agents, each a member of one group."""
