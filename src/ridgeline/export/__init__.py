"""What a plan is handed over as: programs, configurations and manifests, as text."""
