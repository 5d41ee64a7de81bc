"""What a record is, before any order or pattern: new, a duplicate, of which incarnation."""
