"""What the parts of a run do, whatever transport brings rows, weights and orders: pipelines wire roles to channels."""
