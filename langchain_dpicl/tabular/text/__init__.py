"""Rows out of free text: a model fills in a public schema, one unit at a time.

| module | holds |
|---|---|
| `card.py` | the public card: columns, values, what "unknown" is in each |
| `reply.py` | what one reply fills in: public rules |
| `units.py` | each unit's records as texts for calls |
| `asking.py` | a sealed call for each text, and what its reply tells |
| `store.py` | what was read so far: in memory, or in a private file |
| `rows.py` | `TextRows` |
| `drafting.py` | `draft_schema`: public values from names and questions |
"""
