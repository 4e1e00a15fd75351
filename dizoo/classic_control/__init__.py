"""Gymnasium's classic control problems."""
