"""What watches over an instance: its facts at one moment, metrics, alarms."""
