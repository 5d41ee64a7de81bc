"""What carries messages between activities, with their clocks."""
