"""`python -m fedboost`: the command line."""

from fedboost.cli.main import main

if __name__ == "__main__":
    main()
