"""The command line: thin commands over the client. Exit status 0 done, 1 refused or failed, 2 not understood."""
