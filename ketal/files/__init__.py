"""Files of this machine: the folders of a user, locks on files, files replaced whole."""
