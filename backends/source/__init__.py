"""Programs as source text."""
