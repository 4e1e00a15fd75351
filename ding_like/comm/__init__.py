"""Carry batches, weights and commands between processes: the joints of every pipeline that has more than one."""
