"""omqtest: power cuts and kills under a recorded workload, on a directory of the user's choice."""
