"""PTX text -> tree. This room knows punctuation and directives; it knows no opcode."""
