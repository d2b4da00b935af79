"""Differentially private mechanisms on plain numbers.

Each release is one function, in a file that reads as its own privacy argument: input,
neighbors, sensitivity, noise, event. The event is code as well: beside each release
stands the charge that it costs, and *a release takes the event that was paid*, so its
noise can't differ from the charge. Nothing here knows of LangChain, of accounts, or of
where the numbers come from. What is no argument of a release is refused with
`InvalidParameterError`: rows that are ragged, not finite, negative, or more than 1 in
all, an event that is of another kind or leaves something open. Its message holds no
word, count or entry.

| release | charged by | file |
|---|---|---|
| `noisy_counts` | `charge` | `voting.py` |
| `ptr_top_k` | `charge` | `keyword_ptr.py` |
| `choose_k`, then `ptr_top_k` | `range_charge` | `keyword_ptr.py` |
| `threshold_words` | `charge` | `keyword_threshold.py` |
| `joint_top_k` | `charge` | `keyword_joint.py` |
| `noisy_next_token` | `charge` | `next_token.py` |
| `noisy_max_next_token` | `max_charge` | `next_token.py` |
| `clipped_token` | `charge` | `clipped_token.py` |
| `noisy_tallies` | `tallies_charge` | `tables.py` |
| `noisy_histograms` | `histograms_charge` | `tables.py` |
| `noisy_slots` | `charge`, `gaussian_charge` | `slots.py` |
| `randomize` | `charge` | `responses.py` |

They share one source of random bits (`random.py`) and one way to draw without error
(`exact.py`), so no error term has to be added to a delta or an epsilon.

Example:
    >>> from langchain_dpicl.accounting import Gaussian
    >>> paid = Gaussian(noise_multiplier=0.01)
    >>> voting.noisy_counts([30, 9], paid, "replace").tolist()
    [30, 9]
"""

from langchain_dpicl.mechanisms import (
    clipped_token,
    exact,
    keyword_joint,
    keyword_ptr,
    keyword_threshold,
    next_token,
    random,
    responses,
    slots,
    tables,
    voting,
)

__all__ = [
    "clipped_token",
    "exact",
    "keyword_joint",
    "keyword_ptr",
    "keyword_threshold",
    "next_token",
    "random",
    "responses",
    "slots",
    "tables",
    "voting",
]
