"""What users hand over and take away: data files, folders of results, specs and models by name."""
