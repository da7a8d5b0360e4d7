"""How each kind of question is put to the public API: one function per feature, and no arithmetic."""
