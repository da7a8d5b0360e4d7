"""Reads a Hugging Face `config.json`: which decoder it describes, whatever its family calls things.

json_file          bytes on disk to plain values
names              model types: which family, which are refused and why
families           what each family's code fixes, as data; defaults.toml: what absent keys mean
section            the part of the file that is the decoder, and its family
config             its values under one set of names, checked
patterns           what stands where in the stack
mixers, channels   the two halves of a layer
nas                layers that each state their own widths
quantization       what a checkpoint holds its weights in
reader             the whole model
"""

from ridgeline.model.huggingface.reader import read_config

__all__ = ["read_config"]
