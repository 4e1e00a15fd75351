"""Walk along a cliff, a grid world of gymnasium."""
