"""What owners write: settings files of daemons, and a party's policy."""
