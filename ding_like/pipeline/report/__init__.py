"""What a run shows of itself: lines on the console, curves and videos, made from what it wrote."""
