"""Elementary and special functions as straight-line scalar code."""
