"""Reads a Hugging Face `config.json`: which decoder it describes, whatever the family calls things.

json_file   bytes on disk to plain values
config      one set of names, family defaults, checked values
names       model types: which family, which are refused and why
families    what each family's code fixes, as data
patterns    what stands where in the stack
mixers, channels   the two halves of a layer
reader      the whole model
"""

from ridgeline.model.huggingface.reader import read_config

__all__ = ["read_config"]
