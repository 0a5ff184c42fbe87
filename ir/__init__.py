"""IR: types, nodes, graphs, ops and the loop language."""
