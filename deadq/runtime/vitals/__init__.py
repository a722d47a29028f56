"""How a worker is, for those who keep it: health file and endpoint, systemd."""
