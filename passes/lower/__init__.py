"""Graph to program: what is stored, what shares a kernel, index push-down, loops of graphs.

What a program becomes for one machine is in `passes/loops`.
"""
