"""What both ends of the wire share: arguments, messages on their way, answers, errno."""
