"""Swing a two-link robot up."""
