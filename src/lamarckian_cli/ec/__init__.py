"""Evolutionary computation: codings, operators, selection, Pareto tools. Arrays in, arrays out."""
