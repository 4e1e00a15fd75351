"""Run what we have by another library's names beside that library; say what is equal and what differs on purpose."""
