"""What a run says where it found nothing: what no event was, and what no event could be."""
