"""MinAtar: five small games after Atari's; they need the extra `minatar`."""
