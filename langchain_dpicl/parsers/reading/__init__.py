"""What a model's reply says: public rules about one text.

| module | reads |
|---|---|
| `choice.py` | which of the public options a reply chooses |
| `drafts.py` | the options that a model drafted |
| `refusal.py` | whether a reply says that it has no answer |
| `keywords.py` | what an answer is counted for |
| `wording.py` | whether a sentence keeps the released words |
| `text.py`, `mentions.py` | words and clauses; where options are named or denied |

No function here knows more than one reply and public things, so that no record changes
how another group's reply is read. None raises on any text, and the time of each is
linear in its length.
"""
