"""What the command line does with a file of wishes: it is read, checked, run, and its results are written."""
