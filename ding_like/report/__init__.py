"""Show a run: lines on the console, curves, pages and comparisons, made from the files that it wrote."""
