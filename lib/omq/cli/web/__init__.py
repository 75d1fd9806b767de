"""omq-web: the console of an instance, and its REST interface."""
