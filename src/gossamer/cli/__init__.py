"""The command line: parsing and printing only, every decision lives in the folder it belongs to."""
