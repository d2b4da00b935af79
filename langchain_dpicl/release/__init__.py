"""What every release does, whatever its kind: its order of steps.

`flow.py` runs one order of steps for callers that block and callers that await.
"""
