"""Where the state of a job's parts is kept between two processes."""
