"""What ties a child to its supervisor: shared memory, words, a lock."""
