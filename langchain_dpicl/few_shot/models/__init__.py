"""Next-token models: the contract (`contract.py`) and its adapters.

The adapters are imported by those who use them: one brings HTTP clients with it, the
other one torch.
"""
