"""Train on one rank of a torch.distributed group, and collect on the others. See docs/ranks.md.

settings.py    read system_config['ranks']
runner.py      rank 0: RankRunner steps the run, CollectingRanks gives orders and receives rows
collector.py   the other ranks: RankCollector follows the words of the weight updater
rows.py        a segment of rows as a header and one vector of numbers a dtype
"""
