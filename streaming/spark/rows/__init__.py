"""The conversion of a user's DataFrame to the rows of key groups."""
