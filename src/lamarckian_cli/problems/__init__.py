"""What is to be solved: the Evaluator interface, and the numerical test problems."""
