"""`python -m unmask` is the command line: what `torchrun -m unmask train ...` starts in every process."""

from unmask.cli import main

if __name__ == "__main__":
    main()
