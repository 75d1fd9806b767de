"""The manager's side of the wire: who may come in, what is asked, what is answered."""
