"""Passes: graph to graph, graph to program, program to program."""
