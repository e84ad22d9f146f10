"""`python -m pciescope_fleet`."""

from pciescope_fleet.cli import entry

if __name__ == "__main__":
    entry()
