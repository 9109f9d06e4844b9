"""The outer loop and its strategies, which ask and tell."""
