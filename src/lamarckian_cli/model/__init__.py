"""Networks, action heads, and parameters as one flat vector."""
