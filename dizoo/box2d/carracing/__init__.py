"""Drive along a track, seen from above."""
