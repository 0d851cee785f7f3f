"""Labelled files of further forms to rows, a module for each form or family of forms."""
