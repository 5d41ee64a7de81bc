"""Carriers of messages between activities: HTTP, queues, sockets and threads, with clocks."""
