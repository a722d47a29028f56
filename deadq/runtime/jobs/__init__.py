"""One job in a child's hands: its run, its units, what its handler sees."""
