"""Local files: the user's folders, file locks, atomic replacement of files."""
