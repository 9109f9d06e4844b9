"""Lamarckian: evolutionary reinforcement learning, from one machine to thousands of cores."""

__version__ = "0.1.0"
