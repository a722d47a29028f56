"""``python -m deadq.cli``: the command where its script is not on the PATH, but for a Ctrl-C while
Python still imports the package, which only the script hears quietly."""

from . import main

if __name__ == "__main__":
    main()
