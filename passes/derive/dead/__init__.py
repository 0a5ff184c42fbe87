"""Dead rows: what masks leave out of a derivative, and rules asked at the rest.

A select between a value and something else, a product with a mask, a slice and a gather leave out
part of a value. There its cotangent is exactly 0, and so are all derivatives of the cotangent. A
product or a norm sums over rows what each of them gives, and 0 · NaN is NaN: so rows that are left
out are taken out of what its rule reads.
"""
