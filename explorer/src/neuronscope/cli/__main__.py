"""`python -m neuronscope.cli` is the command line."""

from neuronscope.cli import main

if __name__ == "__main__":
    main()
