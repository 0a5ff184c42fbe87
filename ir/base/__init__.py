"""What lies below both languages: element types, sizes, errors, settings, places in files.

Nothing here knows of nodes or of loops.
"""
