"""Do the work of a run over channels: collect, train, evaluate, keep the record. A pipeline connects these."""
