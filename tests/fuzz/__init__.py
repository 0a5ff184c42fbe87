"""Random programs over the public interface, held to laws.

`program` is what a program is, `scope` `scalars` `arrays` `networks` `control` `generate` make one,
`judge` and `laws` hold it, `shrink` makes a failing one small, `__main__` runs them by the hour.
"""
