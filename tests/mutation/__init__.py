"""Break the package on purpose, one line at a time, and see that the tests notice."""
