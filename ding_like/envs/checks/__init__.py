"""What `check_env` looks at, one file per kind of fault."""
