"""Which model and tokenizer these are: a name that two that differ never share."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

# They tell where a model came from and what wrote it, not what it says.
_INCIDENTAL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
_DIGITS = 12


def public_name(model: Any) -> str:
    """Return what a model is called, without the folders that it was loaded from.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(
        ...     _name_or_path="/home/me/gpt2-small", model_type="gpt2"
        ... )
        >>> public_name(SimpleNamespace(config=config))
        'gpt2-small'
    """
    given = str(getattr(model.config, "_name_or_path", "") or "")
    if given and (Path(given).is_absolute() or Path(given).exists()):
        given = Path(given).name
    return given or str(getattr(model.config, "model_type", "") or "model")


def fingerprint(model: Any, tokenizer: Any) -> str:
    """Return a digest of a model's configuration and weights and of its tokenizer.

    Every weight is read, so that a model fine-tuned by a hair has another one. Weights
    that are on no device of this process count with their name and shape alone.

    Args:
        model: A model of transformers.
        tokenizer: Its tokenizer.

    Returns:
        Twelve hexadecimal digits, the same in every process.
    """
    digest = hashlib.sha256()
    config = model.config.to_diff_dict()
    known = {key: config[key] for key in sorted(config) if key not in _INCIDENTAL}
    digest.update(json.dumps(known, default=str, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        if not tensor.is_meta:
            digest.update(_bytes(tensor))
    digest.update(_tokenizer(tokenizer).encode())
    return digest.hexdigest()[:_DIGITS]


def _bytes(tensor: Any) -> Any:
    import torch

    if hasattr(tensor, "dequantize") and tensor.is_quantized:
        tensor = tensor.dequantize()
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()


def _tokenizer(tokenizer: Any) -> str:
    parts: list[Any] = [
        sorted(tokenizer.get_vocab().items()),
        {key: str(value) for key, value in tokenizer.special_tokens_map.items()},
    ]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        written = json.loads(backend.to_str())
        # Both change while a tokenizer is used.
        written.pop("truncation", None)
        written.pop("padding", None)
        parts.append(written)
    return json.dumps(parts, sort_keys=True, default=str)
