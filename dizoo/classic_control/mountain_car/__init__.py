"""Drive a weak car up a hill."""
