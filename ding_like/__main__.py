"""Run the `ding` command as `python -m ding_like`, below torchrun say."""

from ding_like.entry.cli import main

if __name__ == "__main__":
    main()
