"""Published figures that are computed by a study of their own, not by a sweep; see `lab/published/`."""
