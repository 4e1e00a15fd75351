"""Teams: several agents with one reward."""
