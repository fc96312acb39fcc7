"""Run the command line: `python -m jobs`."""

from jobs.cli.commands import main

if __name__ == "__main__":
    main()
