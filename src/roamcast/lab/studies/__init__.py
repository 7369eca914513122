"""Figures whose numbers come from a study of their own, not from a sweep; `lab/published/` names them."""
