"""Train with a coordinator, collectors and learners in processes of their own, on one machine or on many."""
