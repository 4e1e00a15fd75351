"""Land a spacecraft softly."""
