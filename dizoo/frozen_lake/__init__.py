"""Cross a frozen lake, a grid world of gymnasium."""
