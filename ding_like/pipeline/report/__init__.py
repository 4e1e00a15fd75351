"""Show a run: lines on the console, curves and videos, made from the files that it wrote."""
