"""Scenarios behind `lamarck bench`."""
