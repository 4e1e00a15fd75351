"""Walk on two legs."""
