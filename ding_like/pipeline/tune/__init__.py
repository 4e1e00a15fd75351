"""Search for settings: a study of trials, each an ordinary run in a process of its own."""
