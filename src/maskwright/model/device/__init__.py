"""What this machine can do, what training costs on it, and how the process is set up for it."""
