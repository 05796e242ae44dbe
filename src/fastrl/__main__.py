"""`python -m fastrl`: the command line."""

from fastrl.cli import main

main()
