"""The loop language: what a graph becomes, its meaning, and what all of its emitters share.

Transformations of programs are passes and live in `passes/loops`.
"""
