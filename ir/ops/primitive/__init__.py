"""Operations that are lowered to loops themselves.

What is made of other operations stands in the floors above.
"""
