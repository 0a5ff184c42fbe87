"""What operations are declared with: families, checks of arguments, batching rules, constants.

Besides constants no operation is declared here.
"""
