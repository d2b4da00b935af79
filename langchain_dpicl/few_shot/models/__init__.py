"""Next-token models: the contract, and its adapters.

| module | model |
|---|---|
| `contract.py` | `NextTokenModel`: what a generator asks of any |
| `openai_compatible.py` | a server with completions and log-probabilities: vLLM |
| `transformers_model.py` | a causal model of transformers, in this process |

`offline.OfflineNextTokenModel` is the third one. The adapters are imported by those who
use them: one brings HTTP clients with it, the other one torch.
"""
