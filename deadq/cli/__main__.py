"""``python -m deadq.cli``: the command where its script is not on the PATH."""

from . import main

if __name__ == "__main__":
    main()
