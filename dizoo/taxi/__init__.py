"""Carry a passenger by taxi, a grid world of gymnasium."""
