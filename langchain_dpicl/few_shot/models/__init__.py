"""Next-token models: the contract, and the adapters for vLLM and transformers.

The adapters are imported by those who use them: one brings HTTP clients with it, the
other one torch.
"""
