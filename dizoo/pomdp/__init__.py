"""Tasks that are observed in part: with noise, lost numbers and frames that stand still."""
