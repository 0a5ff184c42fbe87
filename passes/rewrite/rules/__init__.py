"""Rewrite rules, each a named equation."""
