"""What users pass, as nodes of one type; what composites share to check and convert operands.

No operation is declared here.
"""
